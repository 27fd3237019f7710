"""Pods that fail for good as soon as they are made: what the node says is told while they miss."""

import copy
from typing import Any

import pytest

from fathom.core.cluster.kinds import DEPLOYMENT, POD
from fathom.core.times import rfc3339
from support.bench import Bench

SAID = "Allocate failed due to requested number of devices unavailable for nvidia.com/gpu"
REFUSED = {"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": SAID}


def failed(bench: Bench, pod: dict[str, Any], name: str, *, ago_s: float = 0.0) -> None:
    """Put a pod like this one beside it, which its node has refused."""
    other = copy.deepcopy(pod)
    other["metadata"] |= {
        "name": name,
        "uid": f"uid of {name}",
        "creationTimestamp": rfc3339(bench.clock.at_s - ago_s),
    }
    bench.kube.put(POD, {**other, "status": REFUSED})


async def up() -> tuple[Bench, dict[str, Any]]:
    """Two replicas."""
    bench = Bench({"replicas": 2})
    await bench.until_ready()
    pods = bench.kube.all_of(POD)
    return bench, copy.deepcopy(pods[0])


@pytest.mark.parametrize(("count", "more"), [(1, "failed: "), (20, "failed (19 more pods failed")])
async def test_what_the_node_says_is_told_while_a_replica_is_missing(count: int, more: str) -> None:
    bench, pod = await up()
    bench.kube.remove(POD, "llm", bench.kube.names(POD)[1])
    for number in range(count):
        failed(bench, pod, f"kimi-failed-{number:02d}")
    await bench.tick()
    degraded = bench.condition("Degraded")
    assert (degraded["status"], degraded["reason"]) == ("True", "PodFailing")
    assert f"UnexpectedAdmissionError: {SAID}" in degraded["message"]
    assert more in degraded["message"]


async def test_old_ones_say_nothing_of_the_present_nor_do_any_where_all_serve() -> None:
    bench, pod = await up()
    failed(bench, pod, "kimi-failed")
    await bench.tick()
    assert bench.condition("Degraded")["status"] == "False"
    bench.kube.remove(POD, "llm", "kimi-failed")
    failed(bench, pod, "kimi-failed", ago_s=3600)
    bench.kube.remove(POD, "llm", bench.kube.names(POD)[0])
    await bench.tick()
    assert bench.condition("Degraded")["status"] == "False"


async def test_a_canary_whose_pods_are_refused_says_why_it_goes_back() -> None:
    bench = Bench({"replicas": 2, "engine.startupMinutes": 5})
    await bench.until_ready()
    (old,) = bench.kube.names(DEPLOYMENT)
    bench.edit({"engine.image": "vllm/vllm-openai:v0.32.1"})
    for _ in range(900):
        bench.clock.at_s += await bench.tick() or 0
        bench.play_controllers()
        for pod in bench.kube.all_of(POD):
            if not pod["metadata"]["name"].startswith(old):
                bench.kube.remove(POD, "llm", pod["metadata"]["name"])
                failed(bench, pod, pod["metadata"]["name"])
        if (bench.status.get("rollout") or {}).get("stage") == "RolledBack":
            break
    rollout = bench.status["rollout"]
    assert rollout["reason"] == "PodFailing"
    assert SAID in rollout["message"]


@pytest.mark.parametrize(
    ("edit", "reason"),
    [({"draft.method": "telepathy"}, "InvalidSpec"), ({}, "PodFailing")],
)
async def test_a_spec_that_is_refused_hides_no_pod_that_fails(
    edit: dict[str, str], reason: str
) -> None:
    bench, pod = await up()
    bench.edit(edit)
    failed(bench, pod, "kimi-failed")
    bench.kube.remove(POD, "llm", bench.kube.names(POD)[0])
    await bench.tick()
    degraded = bench.condition("Degraded")
    assert degraded["reason"] == reason
    assert f"UnexpectedAdmissionError: {SAID}" in degraded["message"]
