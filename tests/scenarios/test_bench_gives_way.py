"""A replica that has no place gets that of a bench: the operator ends the bench's Job."""

import copy
from typing import Any

import pytest

from fathom.bench.job import bench_job
from fathom.cluster.kinds import DEPLOYMENT, EVENT, JOB, POD
from support.loop_harness import LoopHarness
from unit.bench.benches import PROGRAM, bench_of, sample

NO_NODE = {
    "phase": "Pending",
    "conditions": [
        {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": "0/3 nodes are available: 3 Insufficient nvidia.com/gpu.",
        }
    ],
}
BENCH = "kimi-bench"


def begin_bench(harness: LoopHarness, **changes: Any) -> None:
    """As `fathom bench` makes its Job."""
    job = bench_job(sample(), bench_of(), run="r1", deadline_minutes=240, program=PROGRAM)
    harness.kube.put(JOB, {**job, **changes})


def measures(harness: LoopHarness) -> bool:
    return BENCH in harness.kube.names(JOB)


def told(harness: LoopHarness) -> list[str]:
    return [
        each["message"] for each in harness.kube.all_of(EVENT) if each["reason"] == "BenchEnded"
    ]


async def unplaced(harness: LoopHarness) -> str:
    """One replica dies, and the pod that takes its part finds no node."""
    pod = harness.lose_pod(**NO_NODE)
    await harness.tick()
    return pod


async def test_a_bench_ends_where_a_replica_finds_no_node(harness: LoopHarness) -> None:
    begin_bench(harness)
    await harness.tick()
    assert measures(harness)

    pod = await unplaced(harness)

    assert not measures(harness)
    (message,) = told(harness)
    assert f"pod {pod} finds no node" in message
    await harness.tick()
    assert len(told(harness)) == 1


async def test_a_bench_ends_where_a_canary_finds_no_node(harness: LoopHarness) -> None:
    (old,) = harness.kube.names(DEPLOYMENT)
    harness.edit({"engine.image": "vllm/vllm-openai:v0.32.1"})
    begin_bench(harness)
    for _ in range(20):
        harness.clock.at_s += min(await harness.tick() or 0, 10)
        harness.play_controllers()
        for name in harness.kube.names(POD):
            if not name.startswith(old):
                harness.set_ready(name, ready=False, **NO_NODE)
    assert harness.status["rollout"]["stage"] == "Canary"
    assert not measures(harness)


async def test_a_bench_ends_where_a_quota_refuses_a_replica(harness: LoopHarness) -> None:
    begin_bench(harness)
    (name,) = harness.kube.names(DEPLOYMENT)
    deployment = copy.deepcopy(harness.kube.find(DEPLOYMENT, name))
    said = 'pods "kimi-1" is forbidden: exceeded quota: gpus, requested: requests.nvidia.com/gpu=4'
    failure = {"type": "ReplicaFailure", "status": "True", "message": said}
    harness.kube.put(DEPLOYMENT, {**deployment, "status": {"conditions": [failure]}})

    await harness.tick()

    assert not measures(harness)
    assert "exceeded quota: gpus" in told(harness)[0]


async def test_it_goes_on_while_a_pod_that_ends_frees_the_place(harness: LoopHarness) -> None:
    begin_bench(harness)
    ending = copy.deepcopy(harness.kube.find(POD, harness.kube.names(POD)[0]))
    ending["metadata"] |= {"name": "kimi-ending", "deletionTimestamp": "2027-01-15T08:00:00Z"}
    harness.kube.put(POD, ending)

    await unplaced(harness)
    assert measures(harness)

    harness.kube.remove(POD, "llm", "kimi-ending")
    await harness.tick()
    assert not measures(harness)


@pytest.mark.parametrize(
    "changes",
    [
        {"status": {"conditions": [{"type": "Complete", "status": "True"}]}},
        {"status": {"conditions": [{"type": "Failed", "status": "True"}]}},
        {"metadata": {"name": BENCH, "namespace": "llm"}},
    ],
    ids=["complete", "failed", "somebody else's"],
)
async def test_what_holds_no_place_of_ours_stays(
    harness: LoopHarness, changes: dict[str, Any]
) -> None:
    begin_bench(harness, **changes)
    await unplaced(harness)
    assert measures(harness)
    assert told(harness) == []
