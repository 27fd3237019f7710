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
from support.bench import START_S, Bench

BOTH = (LEADER_WORKER_SET, COMPUTE_DOMAIN)
TWO_TRAYS = {"replicas": 2, "engine.tensorParallelSize": 8, "rollout.canaryMinutes": 0}


def bench_with(*kinds: Kind, **changes: Any) -> Bench:
    served = ServedApis(frozenset((kind.api_version, kind.kind) for kind in kinds))
    return Bench({**TWO_TRAYS, **changes}, served=served)


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
        # One that is on its way out already goes when its node says so.
        stays = pod["metadata"]["name"] in wanted or "deletionTimestamp" in pod["metadata"]
        if _in_group(pod) and not stays:
            bench.kube.remove(POD, "llm", pod["metadata"]["name"])
    for name, (owner, index, template) in wanted.items():
        if name not in found:
            labels = {
                **template["metadata"]["labels"],
                "leaderworkerset.sigs.k8s.io/name": owner,
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

    sets = bench.kube.all_of(LEADER_WORKER_SET)
    assert [each["spec"]["replicas"] for each in sets] == [1, 1]
    assert bench.kube.all_of(DEPLOYMENT) == []
    assert bench.status["ready"] == "2/2"
    pods = {pod["metadata"]["name"] for pod in bench.kube.all_of(POD)}
    assert len(pods) == 4
    assert owners(bench) == {"kimi", *pods}
    assert {each["spec"]["leaderWorkerTemplate"]["size"] for each in sets} == {2}
    bench.kube.writes.clear()
    await bench.tick()
    assert bench.kube.writes == []


async def test_what_is_merged_over_workers_rolls_groups_out_and_is_named() -> None:
    bench = bench_with(*BOTH)
    await settle(bench)
    bench.edit({"workerTemplate": {"metadata": {"labels": {"llm-d.ai/role": "none"}}}})
    await settle(bench)

    sets = bench.kube.all_of(LEADER_WORKER_SET)
    assert len(sets) == 2
    for made in (each["spec"]["leaderWorkerTemplate"] for each in sets):
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
        "that is fixed, nothing is started."
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
    assert "Until that is fixed, what runs keeps running." in bench.condition("Degraded")["message"]
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
    group, _ = sorted(bench.kube.names(LEADER_WORKER_SET))
    refuse(bench, group, bench.clock.at_s)
    bench.loop.wake()
    await bench.tick()

    degraded = bench.condition("Degraded")
    assert (degraded["status"], degraded["reason"]) == ("True", "ChildRefused")
    assert degraded["message"] == (f"the cluster refuses pods of LeaderWorkerSet {group}: {QUOTA}.")


async def test_groups_whose_workers_are_refused_say_why_until_they_come() -> None:
    bench = bench_with(*BOTH)
    await settle(bench)
    _, group = sorted(bench.kube.names(LEADER_WORKER_SET))
    take(bench, f"{group}-0-1")
    refuse(bench, f"{group}-0", bench.clock.at_s)
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
    _, group = sorted(bench.kube.names(LEADER_WORKER_SET))
    for pod in bench.kube.all_of(POD):
        pod["metadata"]["creationTimestamp"] = rfc3339(bench.clock.at_s)
        bench.kube.put(POD, pod)
    refuse(bench, f"{group}-0", bench.clock.at_s - 1)
    take(bench, f"{group}-0-1")
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

    assert len(bench.kube.all_of(LEADER_WORKER_SET)) == 3


async def test_a_group_whose_leader_fails_for_good_says_why_whichever_it_is() -> None:
    bench = bench_with(*BOTH)
    await settle(bench)
    leader, _ = _leaders(bench)
    failed = copy.deepcopy(leader)
    failed["metadata"]["creationTimestamp"] = rfc3339(bench.clock.at_s)
    failed["status"] = {"phase": "Failed", "reason": "UnexpectedAdmissionError"}
    bench.kube.put(POD, failed)
    await bench.tick()

    degraded = bench.condition("Degraded")
    assert (degraded["status"], degraded["reason"]) == ("True", "PodFailing")
    assert "UnexpectedAdmissionError" in degraded["message"]


class Broken:
    """Three replicas, of which one is broken for good, and stays so until its group is gone."""

    def __init__(self, bench: Bench, replica: int, *, dead: bool) -> None:
        self.bench = bench
        leaders = sorted(pod["metadata"]["name"] for pod in _leaders(bench))
        self.leader = leaders[replica]
        self._dead = dead
        self.fewest_ready = len(leaders)
        self.break_it()

    def break_it(self) -> None:
        if self.leader not in self.bench.kube.names(POD):
            return
        self.bench.set_ready(self.leader, ready=False)
        if self._dead:
            body = copy.deepcopy(self.bench.kube.find(POD, self.leader))
            body["metadata"]["deletionTimestamp"] = rfc3339(START_S - 3600)
            self.bench.kube.put(POD, body)

    async def run(self, minutes: float) -> None:
        """Passes and controllers in turn; what is broken is never ready."""
        until_s = self.bench.clock.at_s + minutes * 60
        while self.bench.clock.at_s < until_s:
            self.bench.clock.at_s += min(await self.bench.tick() or 0, 60)
            play_groups(self.bench)
            self.bench.play_controllers()
            self.break_it()
            ready = sum(_is_ready(pod) for pod in _leaders(self.bench))
            self.fewest_ready = min(self.fewest_ready, ready)


BOUNDS: list[dict[str, Any]] = [{}, {"rollout.maxUnavailable": 0, "rollout.maxSurge": 1}]


@pytest.mark.parametrize("dead", [False, True])
@pytest.mark.parametrize("replica", [0, 1, 2])
@pytest.mark.parametrize("bounds", BOUNDS, ids=["in a place", "with a surge"])
async def test_any_replica_that_is_broken_makes_room_for_the_edit_that_mends_it(
    bounds: dict[str, Any], replica: int, *, dead: bool
) -> None:
    bench = bench_with(*BOTH, replicas=3, **bounds)
    await settle(bench)
    broken = Broken(bench, replica, dead=dead)
    bench.edit({"nodePool.nodeSelector": {"rack": "good"}})
    await broken.run(30)

    assert bench.status["rollout"]["stage"] == "Complete"
    assert bench.status["ready"] == "3/3"
    assert broken.fewest_ready >= 2
    revisions = {_revision(pod) for pod in _leaders(bench) if _is_ready(pod)}
    assert revisions == {bench.status["rollout"]["revision"]}


async def test_fewer_replicas_take_the_one_that_does_not_serve() -> None:
    bench = bench_with(*BOTH, replicas=3)
    await settle(bench)
    broken = Broken(bench, 0, dead=False)
    bench.edit({"replicas": 2})
    await broken.run(5)

    assert broken.leader not in bench.kube.names(POD)
    assert (bench.status["ready"], broken.fewest_ready) == ("2/2", 2)
    assert len(bench.kube.all_of(LEADER_WORKER_SET)) == 2


async def test_a_replica_whose_node_died_comes_back_on_another() -> None:
    """No StatefulSet does that: its pod is there as long as the node's object is."""
    bench = bench_with(*BOTH, replicas=3)
    await settle(bench)
    broken = Broken(bench, 1, dead=True)
    await broken.run(5)
    assert bench.status["ready"] == "3/3"
    assert broken.leader in bench.kube.names(POD)

    dead, uids = broken.leader.removesuffix("-0"), _uids(bench)
    assert dead in bench.kube.names(LEADER_WORKER_SET)
    take(bench, broken.leader)
    await broken.run(5)
    assert dead not in bench.kube.names(LEADER_WORKER_SET)
    assert (bench.status["ready"], _uids(bench)) == ("3/3", uids - {f"uid-{broken.leader}"})


async def as_an_earlier_fathom_left_it(bench: Bench, replicas: int) -> str:
    """One LeaderWorkerSet for all groups of a revision; its name."""
    await settle(bench)
    first, *others = bench.kube.all_of(LEADER_WORKER_SET)
    name = f"kimi-{first['metadata']['labels']['fathom.dev/revision']}"
    several = copy.deepcopy(first)
    several["metadata"] |= {"name": name, "uid": "uid-several"}
    several["spec"]["replicas"] = replicas
    for each in (first, *others):
        bench.kube.remove(LEADER_WORKER_SET, "llm", each["metadata"]["name"])
    bench.kube.put(LEADER_WORKER_SET, several)
    play_groups(bench)
    bench.play_controllers()
    await settle(bench)
    return name


async def test_a_set_of_several_groups_stays_until_the_next_edit() -> None:
    bench = bench_with(*BOTH, replicas=3)
    several = await as_an_earlier_fathom_left_it(bench, 3)
    assert bench.kube.names(LEADER_WORKER_SET) == [several]
    uids = _uids(bench)
    bench.edit({"replicas": 4})
    await settle(bench)

    sets = {each["metadata"]["name"]: each for each in bench.kube.all_of(LEADER_WORKER_SET)}
    further = next(each for name, each in sets.items() if name != several)
    assert {name: each["spec"]["replicas"] for name, each in sets.items()} == {
        several: 3,
        further["metadata"]["name"]: 1,
    }
    of_both = (each["spec"]["leaderWorkerTemplate"] for each in (further, sets[several]))
    assert next(of_both) == next(of_both)
    assert uids < _uids(bench)

    bench.edit({"nodePool.nodeSelector": {"rack": "good"}})
    await settle(bench)
    assert several not in bench.kube.names(LEADER_WORKER_SET)
    assert [each["spec"]["replicas"] for each in bench.kube.all_of(LEADER_WORKER_SET)] == [1] * 4


async def test_a_group_that_blocks_is_named_and_costs_the_canary_nothing() -> None:
    """The last groups of a set of several go first, and they serve."""
    changes = {"replicas": 3, "engine.startupMinutes": 5}
    bench = bench_with(*BOTH, **changes)
    several = await as_an_earlier_fathom_left_it(bench, 3)
    broken = Broken(bench, 0, dead=False)
    bench.edit({"nodePool.nodeSelector": {"rack": "good"}})
    await broken.run(30)

    progressing = bench.condition("Progressing")
    assert (progressing["status"], progressing["reason"]) == ("False", "RolloutBlocked")
    assert f"Group {several}-0 does not serve, and cannot make room" in progressing["message"]
    assert bench.status["reason"] == "RolloutBlocked"
    assert bench.status["rollout"]["stage"] == "Canary"
    assert broken.fewest_ready == 2

    bench.edit({"rollout.maxUnavailable": 2})
    await broken.run(30)
    assert bench.status["rollout"]["stage"] == "Complete"
    assert bench.status["ready"] == "3/3"
    assert broken.fewest_ready == 1


def _leaders(bench: Bench) -> list[dict[str, Any]]:
    pods = bench.kube.all_of(POD)
    return [pod for pod in pods if pod["metadata"]["labels"].get("fathom.dev/role") == "leader"]


def _is_ready(pod: dict[str, Any]) -> bool:
    conditions = {each["type"]: each["status"] for each in pod["status"]["conditions"]}
    return conditions["Ready"] == "True"


def _revision(pod: dict[str, Any]) -> str:
    revision: str = pod["metadata"]["labels"]["fathom.dev/revision"]
    return revision


def _uids(bench: Bench) -> set[str]:
    return {pod["metadata"]["uid"] for pod in _leaders(bench)}


def _in_group(pod: dict[str, Any]) -> bool:
    return "leaderworkerset.sigs.k8s.io/group-index" in pod["metadata"]["labels"]
