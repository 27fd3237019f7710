"""Replicas over several nodes, in the loop: what is made, who owns it, in which order it goes."""

import copy
from typing import Any

import pytest

from fathom.adapters.ports import KubeError
from fathom.core.cluster.kinds import (
    COMPUTE_DOMAIN,
    DEPLOYMENT,
    EVENT,
    LEADER_WORKER_SET,
    POD,
    Kind,
)
from fathom.core.cluster.served import ServedApis
from fathom.core.times import rfc3339
from support.bench import Bench

BOTH = (LEADER_WORKER_SET, COMPUTE_DOMAIN)
TWO_TRAYS = {"replicas": 2, "engine.tensorParallelSize": 8, "rollout.canaryMinutes": 0}


def bench_with(*kinds: Kind) -> Bench:
    served = ServedApis(frozenset((kind.api_version, kind.kind) for kind in kinds))
    return Bench(TWO_TRAYS, served=served)


def play_groups(bench: Bench) -> None:
    """Each LeaderWorkerSet gets the pods it asks for, and loses its last groups."""
    wanted = {}
    for each in bench.kube.all_of(LEADER_WORKER_SET):
        group = each["spec"]["leaderWorkerTemplate"]
        for index in range(each["spec"]["replicas"]):
            for number in range(group["size"]):
                name = f"{each['metadata']['name']}-{index}" + (f"-{number}" if number else "")
                template = group["workerTemplate" if number else "leaderTemplate"]
                wanted[name] = (each["metadata"]["name"], index, template)
    found = {pod["metadata"]["name"] for pod in bench.kube.all_of(POD)}
    for pod in bench.kube.all_of(POD):
        labels = pod["metadata"]["labels"]
        if "leaderworkerset.sigs.k8s.io/group-index" in labels and (
            pod["metadata"]["name"] not in wanted
        ):
            bench.kube.remove(POD, "llm", pod["metadata"]["name"])
    for name, (owner, index, template) in wanted.items():
        if name not in found:
            labels = {
                **template["metadata"]["labels"],
                "leaderworkerset.sigs.k8s.io/group-index": str(index),
            }
            metadata = {"name": name, "namespace": "llm", "labels": labels, "uid": f"uid-{name}"}
            stateful_set = {"kind": "StatefulSet", "name": owner, "uid": "", "controller": True}
            metadata["ownerReferences"] = [stateful_set]
            spec = copy.deepcopy(template["spec"])
            bench.kube.put(
                POD, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
            )


async def settle(bench: Bench, passes: int = 60) -> None:
    for _ in range(passes):
        before = bench.kube.version
        bench.clock.at_s += min(await bench.tick() or 0, 30)
        play_groups(bench)
        bench.play_controllers()
        if bench.kube.version == before and bench.condition("Progressing")["status"] == "False":
            return
    raise AssertionError(f"never at rest: {bench.status}")


def owners(bench: Bench) -> set[str]:
    (domain,) = bench.kube.all_of(COMPUTE_DOMAIN)
    return {each["name"] for each in domain["metadata"]["ownerReferences"]}


async def test_groups_serve_and_their_pods_own_the_domain() -> None:
    bench = bench_with(*BOTH)
    await settle(bench)

    (group,) = bench.kube.all_of(LEADER_WORKER_SET)
    assert bench.kube.all_of(DEPLOYMENT) == []
    assert bench.status["ready"] == "2/2"
    pods = {pod["metadata"]["name"] for pod in bench.kube.all_of(POD)}
    assert len(pods) == 4
    assert owners(bench) == {"kimi", *pods}
    assert group["spec"]["leaderWorkerTemplate"]["size"] == 2
    bench.kube.writes.clear()
    await bench.tick()
    assert bench.kube.writes == []


async def test_what_is_merged_over_workers_rolls_groups_out_and_is_named() -> None:
    bench = bench_with(*BOTH)
    await settle(bench)
    bench.edit({"workerTemplate": {"metadata": {"labels": {"llm-d.ai/role": "none"}}}})
    await settle(bench)

    (group,) = bench.kube.all_of(LEADER_WORKER_SET)
    made = group["spec"]["leaderWorkerTemplate"]
    assert made["workerTemplate"]["metadata"]["labels"]["llm-d.ai/role"] == "none"
    assert "llm-d.ai/role" not in made["leaderTemplate"]["metadata"]["labels"]
    assert bench.status["rollout"]["why"] == "workers' labels: llm-d.ai/role none was added"


async def test_a_pod_that_is_new_owns_the_domain_too() -> None:
    bench = bench_with(*BOTH)
    await settle(bench)
    bench.edit({"replicas": 3})
    await settle(bench)

    assert len(owners(bench)) == 1 + 6


async def test_the_domain_goes_after_the_last_pod_that_claims_it() -> None:
    bench = bench_with(*BOTH)
    await settle(bench)
    bench.edit({"engine.tensorParallelSize": 4})
    seen: list[tuple[int, int]] = []
    for _ in range(60):
        bench.clock.at_s += min(await bench.tick() or 0, 30)
        groups = [pod for pod in bench.kube.all_of(POD) if _in_group(pod)]
        seen.append((len(groups), len(bench.kube.all_of(COMPUTE_DOMAIN))))
        play_groups(bench)
        bench.play_controllers()

    assert seen[-1] == (0, 0)
    assert all(domains for groups, domains in seen if groups)
    assert bench.kube.all_of(LEADER_WORKER_SET) == []
    assert bench.status["ready"] == "2/2"


async def test_without_leader_worker_set_it_says_what_to_install() -> None:
    bench = bench_with(COMPUTE_DOMAIN)
    await bench.tick()

    degraded = bench.condition("Degraded")
    assert (degraded["status"], degraded["reason"]) == ("True", "ApiMissing")
    assert degraded["message"] == (
        "spec.engine.tensorParallelSize: a replica of 8 GPUs is a group of 2 pods, which "
        "LeaderWorkerSet keeps together, and this cluster does not serve "
        "leaderworkerset.x-k8s.io/v1: install LeaderWorkerSet (github.com/kubernetes-sigs/lws), or "
        "keep tensorParallelSize × pipelineParallelSize × dataParallelSize within one node. Until "
        "then, nothing is started."
    )
    assert bench.kube.all_of(DEPLOYMENT) == bench.kube.all_of(POD) == []


async def test_without_the_right_to_use_it_the_chart_is_named() -> None:
    bench = bench_with(*BOTH)
    bench.kube.fail = lambda _verb, kind: (
        KubeError(403, "is forbidden") if kind == LEADER_WORKER_SET else None
    )
    await bench.tick()

    assert "may not list leaderworkersets.leaderworkerset.x-k8s.io" in str(
        bench.condition("Degraded")["message"]
    )


async def test_what_runs_keeps_running_when_an_edit_needs_what_is_not_there() -> None:
    bench = Bench({"replicas": 1})
    await bench.until_ready()
    bench.edit({"engine.tensorParallelSize": 8})
    await bench.tick()

    assert bench.condition("Degraded")["reason"] == "ApiMissing"
    assert "Until then, what runs keeps running." in bench.condition("Degraded")["message"]
    (deployment,) = bench.kube.all_of(DEPLOYMENT)
    assert deployment["spec"]["replicas"] == 1


QUOTA = 'pods "kimi" is forbidden: exceeded quota: gpus'


def refuse(bench: Bench, stateful_set: str, at_s: float, message: str = QUOTA) -> None:
    bench.refuse_pod("StatefulSet", stateful_set, message, at_s)


def take(bench: Bench, name: str) -> None:
    """A pod that goes, and does not come back."""
    bench.kube.remove(POD, "llm", name)
    bench.loop.wake()


async def test_groups_whose_leaders_are_refused_say_why() -> None:
    bench = bench_with(*BOTH)
    await bench.tick()
    (group,) = bench.kube.names(LEADER_WORKER_SET)
    refuse(bench, group, bench.clock.at_s)
    bench.loop.wake()
    await bench.tick()

    degraded = bench.condition("Degraded")
    assert (degraded["status"], degraded["reason"]) == ("True", "ChildRefused")
    assert degraded["message"] == (f"the cluster refuses pods of LeaderWorkerSet {group}: {QUOTA}.")


async def test_groups_whose_workers_are_refused_say_why_until_they_come() -> None:
    bench = bench_with(*BOTH)
    await settle(bench)
    (group,) = bench.kube.names(LEADER_WORKER_SET)
    take(bench, f"{group}-1-1")
    refuse(bench, f"{group}-1", bench.clock.at_s)
    await bench.tick()

    assert bench.condition("Degraded")["message"] == (
        f"the cluster refuses pods of LeaderWorkerSet {group}: {QUOTA}."
    )
    play_groups(bench)
    bench.play_controllers()
    bench.loop.wake()
    await bench.tick()
    assert bench.condition("Degraded")["status"] == "False"


async def test_what_was_refused_before_the_pods_came_is_over() -> None:
    bench = bench_with(*BOTH)
    await settle(bench)
    (group,) = bench.kube.names(LEADER_WORKER_SET)
    for pod in bench.kube.all_of(POD):
        pod["metadata"]["creationTimestamp"] = rfc3339(bench.clock.at_s)
        bench.kube.put(POD, pod)
    refuse(bench, f"{group}-1", bench.clock.at_s - 1)
    take(bench, f"{group}-1-1")
    await bench.tick()

    assert bench.condition("Degraded")["status"] == "False"


async def test_no_events_are_read_while_no_pod_is_missing() -> None:
    bench = bench_with(*BOTH)
    await settle(bench)
    asked = []
    bench.kube.fail = lambda verb, kind: asked.append((verb, kind))
    bench.loop.wake()
    await bench.tick()

    assert asked
    assert ("list", EVENT) not in asked
    assert bench.condition("Degraded")["status"] == "False"
    assert bench.condition("Progressing")["reason"] == "UpToDate"


@pytest.mark.parametrize("status", [403, 504, 0])
async def test_without_events_it_goes_on_without_their_advice(status: int) -> None:
    """An operator may not read them, or they are too many to be read in time."""
    bench = bench_with(*BOTH)
    bench.kube.fail = lambda verb, kind: (
        KubeError(status, "no events") if (verb, kind) == ("list", EVENT) else None
    )
    await bench.tick()
    bench.edit({"replicas": 3})
    await bench.tick()

    (group,) = bench.kube.all_of(LEADER_WORKER_SET)
    assert group["spec"]["replicas"] == 3


def _in_group(pod: dict[str, Any]) -> bool:
    return "leaderworkerset.sigs.k8s.io/group-index" in pod["metadata"]["labels"]
