"""A replica that has no place gets that of a bench: the operator ends the bench's Job."""

import copy
from typing import Any

import pytest

from fathom.bench.job import bench_job
from fathom.core.cluster.kinds import DEPLOYMENT, EVENT, JOB, POD
from support.bench import Bench
from unit.depth_bench.benches import PROGRAM, bench_of, sample

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


def begin_bench(bench: Bench, **changes: Any) -> None:
    """As `fathom bench` makes its Job."""
    job = bench_job(sample(), bench_of(), run="r1", deadline_minutes=240, program=PROGRAM)
    bench.kube.put(JOB, {**job, **changes})


def measures(bench: Bench) -> bool:
    return BENCH in bench.kube.names(JOB)


def told(bench: Bench) -> list[str]:
    return [each["message"] for each in bench.kube.all_of(EVENT) if each["reason"] == "BenchEnded"]


async def unplaced(bench: Bench) -> str:
    """One replica dies, and the pod that takes its part finds no node."""
    pod = bench.lose_pod(**NO_NODE)
    await bench.tick()
    return pod


async def test_a_bench_ends_where_a_replica_finds_no_node(bench: Bench) -> None:
    begin_bench(bench)
    await bench.tick()
    assert measures(bench)

    pod = await unplaced(bench)

    assert not measures(bench)
    (message,) = told(bench)
    assert f"pod {pod} finds no node" in message
    await bench.tick()
    assert len(told(bench)) == 1


async def test_a_bench_ends_where_a_canary_finds_no_node(bench: Bench) -> None:
    (old,) = bench.kube.names(DEPLOYMENT)
    bench.edit({"engine.image": "vllm/vllm-openai:v0.32.1"})
    begin_bench(bench)
    for _ in range(20):
        bench.clock.at_s += min(await bench.tick() or 0, 10)
        bench.play_controllers()
        for name in bench.kube.names(POD):
            if not name.startswith(old):
                bench.set_ready(name, ready=False, **NO_NODE)
    assert bench.status["rollout"]["stage"] == "Canary"
    assert not measures(bench)


async def test_a_bench_ends_where_a_quota_refuses_a_replica(bench: Bench) -> None:
    begin_bench(bench)
    (name,) = bench.kube.names(DEPLOYMENT)
    deployment = copy.deepcopy(bench.kube.find(DEPLOYMENT, name))
    said = 'pods "kimi-1" is forbidden: exceeded quota: gpus, requested: requests.nvidia.com/gpu=4'
    failure = {"type": "ReplicaFailure", "status": "True", "message": said}
    bench.kube.put(DEPLOYMENT, {**deployment, "status": {"conditions": [failure]}})

    await bench.tick()

    assert not measures(bench)
    assert "exceeded quota: gpus" in told(bench)[0]


async def test_it_goes_on_while_a_pod_that_ends_frees_the_place(bench: Bench) -> None:
    begin_bench(bench)
    ending = copy.deepcopy(bench.kube.find(POD, bench.kube.names(POD)[0]))
    ending["metadata"] |= {"name": "kimi-ending", "deletionTimestamp": "2027-01-15T08:00:00Z"}
    bench.kube.put(POD, ending)

    await unplaced(bench)
    assert measures(bench)

    bench.kube.remove(POD, "llm", "kimi-ending")
    await bench.tick()
    assert not measures(bench)


@pytest.mark.parametrize(
    "changes",
    [
        {"status": {"conditions": [{"type": "Complete", "status": "True"}]}},
        {"status": {"conditions": [{"type": "Failed", "status": "True"}]}},
        {"metadata": {"name": BENCH, "namespace": "llm"}},
    ],
    ids=["complete", "failed", "somebody else's"],
)
async def test_what_holds_no_place_of_ours_stays(bench: Bench, changes: dict[str, Any]) -> None:
    begin_bench(bench, **changes)
    await unplaced(bench)
    assert measures(bench)
    assert told(bench) == []
