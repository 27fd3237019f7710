"""Replicas over several nodes, in the loop: what is made, who owns it, in which order it goes."""

import copy
from typing import Any

import pytest

from fathom.adapters.ports import KubeError
from fathom.cluster.kinds import (
    COMPUTE_DOMAIN,
    DEPLOYMENT,
    EVENT,
    LEADER_WORKER_SET,
    POD,
    Kind,
    ServedApis,
)
from fathom.times import rfc3339
from support.loop_harness import START_S, LoopHarness

BOTH = (LEADER_WORKER_SET, COMPUTE_DOMAIN)
TWO_TRAYS = {"replicas": 2, "engine.tensorParallelSize": 8, "rollout.canaryMinutes": 0}


def bench_with(*kinds: Kind, **changes: Any) -> LoopHarness:
    served = ServedApis(kinds=frozenset((kind.api_version, kind.kind) for kind in kinds))
    return LoopHarness({**TWO_TRAYS, **changes}, served=served)


def play_groups(harness: LoopHarness) -> None:
    """Each LeaderWorkerSet gets the pods it asks for, and loses its last groups."""
    wanted = {}
    for each in harness.kube.all_of(LEADER_WORKER_SET):
        group = each["spec"]["leaderWorkerTemplate"]
        for index in range(each["spec"]["replicas"]):
            for number in range(group["size"]):
                name = f"{each['metadata']['name']}-{index}" + (f"-{number}" if number else "")
                template = group["workerTemplate" if number else "leaderTemplate"]
                wanted[name] = (each["metadata"]["name"], index, template)
    found = {pod["metadata"]["name"] for pod in harness.kube.all_of(POD)}
    for pod in harness.kube.all_of(POD):
        # One that is on its way out already goes when its node says so.
        stays = pod["metadata"]["name"] in wanted or "deletionTimestamp" in pod["metadata"]
        if _in_group(pod) and not stays:
            harness.kube.remove(POD, "llm", pod["metadata"]["name"])
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
            harness.kube.put(
                POD, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
            )


async def settle(harness: LoopHarness, passes: int = 60) -> None:
    for _ in range(passes):
        before = harness.kube.version
        harness.clock.at_s += min(await harness.tick() or 0, 30)
        play_groups(harness)
        harness.play_controllers()
        if harness.kube.version == before and harness.condition("Progressing")["status"] == "False":
            return
    raise AssertionError(f"never at rest: {harness.status}")


def owners(harness: LoopHarness) -> set[str]:
    (domain,) = harness.kube.all_of(COMPUTE_DOMAIN)
    return {each["name"] for each in domain["metadata"]["ownerReferences"]}


async def test_groups_serve_and_their_pods_own_the_domain() -> None:
    harness = bench_with(*BOTH)
    await settle(harness)

    sets = harness.kube.all_of(LEADER_WORKER_SET)
    assert [each["spec"]["replicas"] for each in sets] == [1, 1]
    assert harness.kube.all_of(DEPLOYMENT) == []
    assert harness.status["ready"] == "2/2"
    pods = {pod["metadata"]["name"] for pod in harness.kube.all_of(POD)}
    assert len(pods) == 4
    assert owners(harness) == {"kimi", *pods}
    assert {each["spec"]["leaderWorkerTemplate"]["size"] for each in sets} == {2}
    harness.kube.writes.clear()
    await harness.tick()
    assert harness.kube.writes == []


async def test_what_is_merged_over_workers_rolls_groups_out_and_is_named() -> None:
    harness = bench_with(*BOTH)
    await settle(harness)
    harness.edit({"workerTemplate": {"metadata": {"labels": {"llm-d.ai/role": "none"}}}})
    await settle(harness)

    sets = harness.kube.all_of(LEADER_WORKER_SET)
    assert len(sets) == 2
    for made in (each["spec"]["leaderWorkerTemplate"] for each in sets):
        assert made["workerTemplate"]["metadata"]["labels"]["llm-d.ai/role"] == "none"
        assert "llm-d.ai/role" not in made["leaderTemplate"]["metadata"]["labels"]
    assert harness.status["rollout"]["why"] == "workers' labels: llm-d.ai/role none was added"


async def test_a_pod_that_is_new_owns_the_domain_too() -> None:
    harness = bench_with(*BOTH)
    await settle(harness)
    harness.edit({"replicas": 3})
    await settle(harness)

    assert len(owners(harness)) == 1 + 6


async def test_the_domain_goes_after_the_last_pod_that_claims_it() -> None:
    harness = bench_with(*BOTH)
    await settle(harness)
    harness.edit({"engine.tensorParallelSize": 4})
    seen: list[tuple[int, int]] = []
    for _ in range(60):
        harness.clock.at_s += min(await harness.tick() or 0, 30)
        groups = [pod for pod in harness.kube.all_of(POD) if _in_group(pod)]
        seen.append((len(groups), len(harness.kube.all_of(COMPUTE_DOMAIN))))
        play_groups(harness)
        harness.play_controllers()

    assert seen[-1] == (0, 0)
    assert all(domains for groups, domains in seen if groups)
    assert harness.kube.all_of(LEADER_WORKER_SET) == []
    assert harness.status["ready"] == "2/2"


async def test_without_leader_worker_set_it_says_what_to_install() -> None:
    harness = bench_with(COMPUTE_DOMAIN)
    await harness.tick()

    degraded = harness.condition("Degraded")
    assert (degraded["status"], degraded["reason"]) == ("True", "ApiMissing")
    assert degraded["message"] == (
        "spec.engine.tensorParallelSize: a replica of 8 GPUs is a group of 2 pods, which "
        "LeaderWorkerSet keeps together, and this cluster does not serve "
        "leaderworkerset.x-k8s.io/v1: install LeaderWorkerSet (github.com/kubernetes-sigs/lws), or "
        "keep tensorParallelSize × pipelineParallelSize × dataParallelSize within one node. Until "
        "that is fixed, nothing is started."
    )
    assert harness.kube.all_of(DEPLOYMENT) == harness.kube.all_of(POD) == []


async def test_without_the_right_to_use_it_the_chart_is_named() -> None:
    harness = bench_with(*BOTH)
    harness.kube.fail = lambda _verb, kind: (
        KubeError(403, "is forbidden") if kind == LEADER_WORKER_SET else None
    )
    await harness.tick()

    assert "may not list leaderworkersets.leaderworkerset.x-k8s.io" in str(
        harness.condition("Degraded")["message"]
    )


async def test_what_runs_keeps_running_when_an_edit_needs_what_is_not_there() -> None:
    harness = LoopHarness({"replicas": 1})
    await harness.until_ready()
    harness.edit({"engine.tensorParallelSize": 8})
    await harness.tick()

    assert harness.condition("Degraded")["reason"] == "ApiMissing"
    assert (
        "Until that is fixed, what runs keeps running." in harness.condition("Degraded")["message"]
    )
    (deployment,) = harness.kube.all_of(DEPLOYMENT)
    assert deployment["spec"]["replicas"] == 1


QUOTA = 'pods "kimi" is forbidden: exceeded quota: gpus'


def refuse(harness: LoopHarness, stateful_set: str, at_s: float, message: str = QUOTA) -> None:
    harness.refuse_pod("StatefulSet", stateful_set, message, at_s)


def take(harness: LoopHarness, name: str) -> None:
    """A pod that goes, and does not come back."""
    harness.kube.remove(POD, "llm", name)
    harness.loop.wake()


async def test_groups_whose_leaders_are_refused_say_why() -> None:
    harness = bench_with(*BOTH)
    await harness.tick()
    group, _ = sorted(harness.kube.names(LEADER_WORKER_SET))
    refuse(harness, group, harness.clock.at_s)
    harness.loop.wake()
    await harness.tick()

    degraded = harness.condition("Degraded")
    assert (degraded["status"], degraded["reason"]) == ("True", "ChildRefused")
    assert degraded["message"] == (f"the cluster refuses pods of LeaderWorkerSet {group}: {QUOTA}.")


async def test_groups_whose_workers_are_refused_say_why_until_they_come() -> None:
    harness = bench_with(*BOTH)
    await settle(harness)
    _, group = sorted(harness.kube.names(LEADER_WORKER_SET))
    take(harness, f"{group}-0-1")
    refuse(harness, f"{group}-0", harness.clock.at_s)
    await harness.tick()

    assert harness.condition("Degraded")["message"] == (
        f"the cluster refuses pods of LeaderWorkerSet {group}: {QUOTA}."
    )
    play_groups(harness)
    harness.play_controllers()
    harness.loop.wake()
    await harness.tick()
    assert harness.condition("Degraded")["status"] == "False"


async def test_what_was_refused_before_the_pods_came_is_over() -> None:
    harness = bench_with(*BOTH)
    await settle(harness)
    _, group = sorted(harness.kube.names(LEADER_WORKER_SET))
    for pod in harness.kube.all_of(POD):
        pod["metadata"]["creationTimestamp"] = rfc3339(harness.clock.at_s)
        harness.kube.put(POD, pod)
    refuse(harness, f"{group}-0", harness.clock.at_s - 1)
    take(harness, f"{group}-0-1")
    await harness.tick()

    assert harness.condition("Degraded")["status"] == "False"


async def test_no_events_are_read_while_no_pod_is_missing() -> None:
    harness = bench_with(*BOTH)
    await settle(harness)
    asked = []
    harness.kube.fail = lambda verb, kind: asked.append((verb, kind))
    harness.loop.wake()
    await harness.tick()

    assert asked
    assert ("list", EVENT) not in asked
    assert harness.condition("Degraded")["status"] == "False"
    assert harness.condition("Progressing")["reason"] == "UpToDate"


@pytest.mark.parametrize("status", [403, 504, 0])
async def test_without_events_it_goes_on_without_their_advice(status: int) -> None:
    """An operator may not read them, or they are too many to be read in time."""
    harness = bench_with(*BOTH)
    harness.kube.fail = lambda verb, kind: (
        KubeError(status, "no events") if (verb, kind) == ("list", EVENT) else None
    )
    await harness.tick()
    harness.edit({"replicas": 3})
    await harness.tick()

    assert len(harness.kube.all_of(LEADER_WORKER_SET)) == 3


async def test_a_group_whose_leader_fails_for_good_says_why_whichever_it_is() -> None:
    harness = bench_with(*BOTH)
    await settle(harness)
    leader, _ = _leaders(harness)
    failed = copy.deepcopy(leader)
    failed["metadata"]["creationTimestamp"] = rfc3339(harness.clock.at_s)
    failed["status"] = {"phase": "Failed", "reason": "UnexpectedAdmissionError"}
    harness.kube.put(POD, failed)
    await harness.tick()

    degraded = harness.condition("Degraded")
    assert (degraded["status"], degraded["reason"]) == ("True", "PodFailing")
    assert "UnexpectedAdmissionError" in degraded["message"]


class Broken:
    """Three replicas, of which one is broken for good, and stays so until its group is gone."""

    def __init__(self, harness: LoopHarness, replica: int, *, dead: bool) -> None:
        self.harness = harness
        leaders = sorted(pod["metadata"]["name"] for pod in _leaders(harness))
        self.leader = leaders[replica]
        self._dead = dead
        self.fewest_ready = len(leaders)
        self.break_it()

    def break_it(self) -> None:
        if self.leader not in self.harness.kube.names(POD):
            return
        self.harness.set_ready(self.leader, ready=False)
        if self._dead:
            body = copy.deepcopy(self.harness.kube.find(POD, self.leader))
            body["metadata"]["deletionTimestamp"] = rfc3339(START_S - 3600)
            self.harness.kube.put(POD, body)

    async def run(self, minutes: float) -> None:
        """Passes and controllers in turn; what is broken is never ready."""
        until_s = self.harness.clock.at_s + minutes * 60
        while self.harness.clock.at_s < until_s:
            self.harness.clock.at_s += min(await self.harness.tick() or 0, 60)
            play_groups(self.harness)
            self.harness.play_controllers()
            self.break_it()
            ready = sum(_is_ready(pod) for pod in _leaders(self.harness))
            self.fewest_ready = min(self.fewest_ready, ready)


BOUNDS: list[dict[str, Any]] = [{}, {"rollout.maxUnavailable": 0, "rollout.maxSurge": 1}]


@pytest.mark.parametrize("dead", [False, True])
@pytest.mark.parametrize("replica", [0, 1, 2])
@pytest.mark.parametrize("bounds", BOUNDS, ids=["in a place", "with a surge"])
async def test_any_replica_that_is_broken_makes_room_for_the_edit_that_mends_it(
    bounds: dict[str, Any], replica: int, *, dead: bool
) -> None:
    harness = bench_with(*BOTH, replicas=3, **bounds)
    await settle(harness)
    broken = Broken(harness, replica, dead=dead)
    harness.edit({"nodePool.nodeSelector": {"rack": "good"}})
    await broken.run(30)

    assert harness.status["rollout"]["stage"] == "Complete"
    assert harness.status["ready"] == "3/3"
    assert broken.fewest_ready >= 2
    revisions = {_revision(pod) for pod in _leaders(harness) if _is_ready(pod)}
    assert revisions == {harness.status["rollout"]["revision"]}


async def test_fewer_replicas_take_the_one_that_does_not_serve() -> None:
    harness = bench_with(*BOTH, replicas=3)
    await settle(harness)
    broken = Broken(harness, 0, dead=False)
    harness.edit({"replicas": 2})
    await broken.run(5)

    assert broken.leader not in harness.kube.names(POD)
    assert (harness.status["ready"], broken.fewest_ready) == ("2/2", 2)
    assert len(harness.kube.all_of(LEADER_WORKER_SET)) == 2


async def test_a_replica_whose_node_died_comes_back_on_another() -> None:
    """No StatefulSet does that: its pod is there as long as the node's object is."""
    harness = bench_with(*BOTH, replicas=3)
    await settle(harness)
    broken = Broken(harness, 1, dead=True)
    await broken.run(5)
    assert harness.status["ready"] == "3/3"
    assert broken.leader in harness.kube.names(POD)

    dead, uids = broken.leader.removesuffix("-0"), _uids(harness)
    assert dead in harness.kube.names(LEADER_WORKER_SET)
    take(harness, broken.leader)
    await broken.run(5)
    assert dead not in harness.kube.names(LEADER_WORKER_SET)
    assert (harness.status["ready"], _uids(harness)) == ("3/3", uids - {f"uid-{broken.leader}"})


async def as_an_earlier_fathom_left_it(harness: LoopHarness, replicas: int) -> str:
    """One LeaderWorkerSet for all groups of a revision; its name."""
    await settle(harness)
    first, *others = harness.kube.all_of(LEADER_WORKER_SET)
    name = f"kimi-{first['metadata']['labels']['fathom.dev/revision']}"
    several = copy.deepcopy(first)
    several["metadata"] |= {"name": name, "uid": "uid-several"}
    several["spec"]["replicas"] = replicas
    for each in (first, *others):
        harness.kube.remove(LEADER_WORKER_SET, "llm", each["metadata"]["name"])
    harness.kube.put(LEADER_WORKER_SET, several)
    play_groups(harness)
    harness.play_controllers()
    await settle(harness)
    return name


async def test_a_set_of_several_groups_stays_until_the_next_edit() -> None:
    harness = bench_with(*BOTH, replicas=3)
    several = await as_an_earlier_fathom_left_it(harness, 3)
    assert harness.kube.names(LEADER_WORKER_SET) == [several]
    uids = _uids(harness)
    harness.edit({"replicas": 4})
    await settle(harness)

    sets = {each["metadata"]["name"]: each for each in harness.kube.all_of(LEADER_WORKER_SET)}
    further = next(each for name, each in sets.items() if name != several)
    assert {name: each["spec"]["replicas"] for name, each in sets.items()} == {
        several: 3,
        further["metadata"]["name"]: 1,
    }
    of_both = (each["spec"]["leaderWorkerTemplate"] for each in (further, sets[several]))
    assert next(of_both) == next(of_both)
    assert uids < _uids(harness)

    harness.edit({"nodePool.nodeSelector": {"rack": "good"}})
    await settle(harness)
    assert several not in harness.kube.names(LEADER_WORKER_SET)
    assert [each["spec"]["replicas"] for each in harness.kube.all_of(LEADER_WORKER_SET)] == [1] * 4


async def test_a_group_that_blocks_is_named_and_costs_the_canary_nothing() -> None:
    """The last groups of a set of several go first, and they serve."""
    changes = {"replicas": 3, "engine.startupMinutes": 5}
    harness = bench_with(*BOTH, **changes)
    several = await as_an_earlier_fathom_left_it(harness, 3)
    broken = Broken(harness, 0, dead=False)
    harness.edit({"nodePool.nodeSelector": {"rack": "good"}})
    await broken.run(30)

    progressing = harness.condition("Progressing")
    assert (progressing["status"], progressing["reason"]) == ("False", "RolloutBlocked")
    assert (
        f"Group {several}-0 does not serve, and cannot be removed alone" in progressing["message"]
    )
    assert harness.status["reason"] == "RolloutBlocked"
    assert harness.status["rollout"]["stage"] == "Canary"
    assert broken.fewest_ready == 2

    harness.edit({"rollout.maxUnavailable": 2})
    await broken.run(30)
    assert harness.status["rollout"]["stage"] == "Complete"
    assert harness.status["ready"] == "3/3"
    assert broken.fewest_ready == 1


def _leaders(harness: LoopHarness) -> list[dict[str, Any]]:
    pods = harness.kube.all_of(POD)
    return [pod for pod in pods if pod["metadata"]["labels"].get("fathom.dev/role") == "leader"]


def _is_ready(pod: dict[str, Any]) -> bool:
    conditions = {each["type"]: each["status"] for each in pod["status"]["conditions"]}
    return conditions["Ready"] == "True"


def _revision(pod: dict[str, Any]) -> str:
    revision: str = pod["metadata"]["labels"]["fathom.dev/revision"]
    return revision


def _uids(harness: LoopHarness) -> set[str]:
    return {pod["metadata"]["uid"] for pod in _leaders(harness)}


def _in_group(pod: dict[str, Any]) -> bool:
    return "leaderworkerset.sigs.k8s.io/group-index" in pod["metadata"]["labels"]
