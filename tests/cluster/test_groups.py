"""Replicas over two nodes each, on a real API server, scheduler and garbage collector.

The controllers of LeaderWorkerSet and ComputeDomain are played, or real where there is a folder
with them (support/group_controllers.py); the pods run simulated engines whose ranks really meet, on
GB200 trays that are not there.
"""

from collections.abc import AsyncIterator, Collection
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from local_cluster.engine.language import EASY
from local_cluster.engine.traffic import LoadGenerator, Phase
from local_cluster.kube import MERGE_PATCH, Object
from support.group_controllers import group_controllers
from support.group_watch import GroupWatch
from support.local_cluster import TestNamespace
from support.operated import SPEC, Resource, resource
from support.operator_process import operator_in
from support.waiting import until

__all__ = ["resource"]

pytestmark = pytest.mark.cluster


def spec(**changes: Any) -> dict[str, Any]:
    """Two replicas of eight GPUs, on trays of four."""
    engine = {**SPEC["engine"], "tensorParallelSize": 8}
    tuning = {"tuning": {"windowSeconds": 10}}
    return {
        **SPEC,
        "engine": engine,
        "speculation": {**SPEC["speculation"], **tuning},
        "rollout": {"canaryMinutes": 0, "maxSurge": 0},
        **changes,
    }


@pytest.fixture
async def groups(namespace: TestNamespace, tmp_path: Path) -> AsyncIterator[GroupWatch]:
    """What becomes of them, with an operator that starts on a cluster with both kinds."""
    async with (
        group_controllers(namespace, tmp_path) as groups,
        operator_in(namespace, tmp_path) as operator,
    ):
        yield groups
        assert not [event for event in operator.requests() if event.code == 403]


TAINT = "fathom.test/bad"


@asynccontextmanager
async def _tainted(namespace: TestNamespace, nodes: Collection[str]) -> AsyncIterator[None]:
    """New pods do not fit these nodes, as long as they do not tolerate it."""
    taint = {"key": TAINT, "effect": "NoSchedule"}

    async def write(node: str, *, bad: bool) -> None:
        path = f"/api/v1/nodes/{node}"
        found = await namespace.api.request("GET", path)
        kept = [each for each in found["spec"].get("taints", []) if each["key"] != TAINT]
        body = {"spec": {"taints": [*kept, *([taint] if bad else [])]}}
        await namespace.api.request("PATCH", path, body=body, content_type=MERGE_PATCH)

    for node in nodes:
        await write(node, bad=True)
    try:
        yield
    finally:
        for node in nodes:
            await write(node, bad=False)


def _role(pods: list[Object], role: str) -> list[Object]:
    return [pod for pod in pods if pod["metadata"]["labels"]["fathom.dev/role"] == role]


async def test_groups_come_up_follow_traffic_restart_roll_and_go(
    namespace: TestNamespace, groups: GroupWatch, resource: Resource
) -> None:
    await resource.apply(spec())
    await resource.wait("Ready", "True")
    pods = await namespace.all_of("Pod")
    leaders, workers = _role(pods, "leader"), _role(pods, "worker")
    assert (len(leaders), len(workers)) == (2, 2)
    assert {pod["spec"]["nodeName"] for pod in pods} == {f"gb200-{i}" for i in range(4)}
    found = (await resource.get())["status"]
    assert (found["ready"], found["replicas"]) == ("2/2", 2)
    assert found["engine"]["actuation"] == "Live"
    (domain,) = await namespace.all_of("ComputeDomain")
    assert domain["spec"]["channel"]["resourceClaimTemplate"]["name"] == "sd-channel"
    groups.fewest_ready["sd"] = 2

    # Live: only leaders read the depth, and it follows the traffic.
    async with AsyncExitStack() as stack:
        for number, pod in enumerate(leaders):
            load = LoadGenerator(f"http://{pod['status']['podIP']}:8000", "pair", seed=number)
            (await stack.enter_async_context(load)).set_phase(Phase(EASY, concurrency=2))

        async def deeper() -> bool:
            depth = (await resource.get())["status"]["depth"]
            return bool(depth["schedule"][0][2] > 3 and depth.get("appliedReplicas") == 2)

        await until(deeper, "depth moves beyond the user's tokens in both groups")
    assert {p["metadata"]["uid"] for p in await namespace.all_of("Pod")} == {
        p["metadata"]["uid"] for p in pods
    }

    # A worker dies: its group is made anew, the other one goes on.
    await namespace.delete("Pod", workers[0]["metadata"]["name"])

    async def restarted() -> bool:
        return groups.restarted == [workers[0]["metadata"]["name"].rsplit("-", 1)[0]]

    await until(restarted, "the worker's group is made anew")
    await resource.wait("Ready", "False")
    await resource.wait("Ready", "True")
    after = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in pods}
    kept = [
        pod["metadata"]["name"]
        for pod in await namespace.all_of("Pod")
        if after.get(pod["metadata"]["name"]) == pod["metadata"]["uid"]
    ]
    assert len(kept) == 2
    assert groups.fewest_ready["sd"] == 1

    # What needs new pods rolls group by group.
    await resource.edit({"engine": {"args": ["--max-num-seqs", "12"]}})

    async def rolled() -> bool:
        sets = await namespace.all_of("LeaderWorkerSet")
        arguments = [
            each["spec"]["leaderWorkerTemplate"]["leaderTemplate"]["spec"]["containers"][0]["args"]
            for each in sets
        ]
        status = (await resource.get())["status"]
        return status["ready"] == "2/2" and ["12" in each for each in arguments] == [True, True]

    await until(rolled, "both groups are of the new revision")
    assert groups.fewest_ready["sd"] == 1, "two groups were down at once"

    # Pods go before the domain: its driver would take NVLink from under them.
    await resource.delete()

    async def gone() -> bool:
        left = [await namespace.all_of(kind) for kind in ("Pod", "ComputeDomain")]
        return not any(left)

    await until(gone, "pods and then the domain are collected")
    assert groups.stranded == []


async def test_a_group_without_a_place_makes_room_for_the_edit_that_gives_it_one(
    namespace: TestNamespace, groups: GroupWatch, resource: Resource
) -> None:
    """The first one: a LeaderWorkerSet of both would give up the last one, which serves."""
    await resource.apply(spec())
    await resource.wait("Ready", "True")
    pods = await namespace.all_of("Pod")
    broken, serving = sorted(_role(pods, "leader"), key=lambda pod: str(pod["metadata"]["name"]))
    group_key = "leaderworkerset.sigs.k8s.io/group-key"
    group = broken["metadata"]["labels"][group_key]
    trays = [
        str(pod["spec"]["nodeName"])
        for pod in pods
        if pod["metadata"]["labels"][group_key] == group
    ]
    async with _tainted(namespace, trays):
        await namespace.delete("Pod", broken["metadata"]["name"])
        degraded = await resource.wait("Degraded", "True")
        assert degraded["reason"] == "PodUnschedulable"
        groups.fewest_ready["sd"] = 1
        tolerations = [{"key": TAINT, "operator": "Exists"}]
        await resource.edit({"nodePool": {"tolerations": tolerations}})

        async def mended() -> bool:
            found = (await resource.get())["status"]
            (*_, last) = await namespace.all_of("LeaderWorkerSet")
            revision = last["metadata"]["labels"]["fathom.dev/revision"]
            rollout = found.get("rollout", {})
            complete = rollout.get("stage") == "Complete" and rollout["revision"] == revision
            return complete and found["ready"] == "2/2"

        await until(mended, "both groups are of the revision that tolerates the taint")
    assert groups.fewest_ready["sd"] == 1, "a group that served was taken for the one that did not"
    names = {pod["metadata"]["name"] for pod in await namespace.all_of("Pod")}
    assert not names & {each["metadata"]["name"] for each in (broken, serving)}


async def test_a_spec_that_fits_a_tray_again_gives_the_domain_up(
    namespace: TestNamespace, groups: GroupWatch, resource: Resource
) -> None:
    await resource.apply(spec(replicas=1))
    await resource.wait("Ready", "True")
    await resource.edit({"engine": {"tensorParallelSize": 4}})

    async def moved() -> bool:
        sets = await namespace.all_of("LeaderWorkerSet")
        domains = await namespace.all_of("ComputeDomain")
        status = (await resource.get())["status"]
        return not sets and not domains and status["ready"] == "1/1"

    await until(moved, "a Deployment serves, and groups and domain are gone")
    (pod,) = await namespace.all_of("Pod")
    assert "leaderworkerset.sigs.k8s.io/name" not in pod["metadata"]["labels"]
    assert groups.stranded == []
