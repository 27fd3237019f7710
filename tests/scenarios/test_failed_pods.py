"""Pods that fail for good as soon as they are made: what the node says is told while they miss."""

import copy
from typing import Any

import pytest

from fathom.adapters.ports import KubeError
from fathom.cluster.kinds import DEPLOYMENT, POD
from fathom.times import rfc3339
from support.loop_harness import LoopHarness

SAID = "Allocate failed due to requested number of devices unavailable for nvidia.com/gpu"
REFUSED = {"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": SAID}


def failed(harness: LoopHarness, pod: dict[str, Any], name: str, *, ago_s: float = 0.0) -> None:
    """Put a pod like this one beside it, which its node has refused."""
    other = copy.deepcopy(pod)
    other["metadata"] |= {
        "name": name,
        "uid": f"uid of {name}",
        "creationTimestamp": rfc3339(harness.clock.at_s - ago_s),
    }
    harness.kube.put(POD, {**other, "status": REFUSED})


async def up() -> tuple[LoopHarness, dict[str, Any]]:
    """Two replicas."""
    harness = LoopHarness({"replicas": 2})
    await harness.until_ready()
    pods = harness.kube.all_of(POD)
    return harness, copy.deepcopy(pods[0])


@pytest.mark.parametrize(("count", "more"), [(1, "failed: "), (20, "failed (19 more pods failed")])
async def test_what_the_node_says_is_told_while_a_replica_is_missing(count: int, more: str) -> None:
    harness, pod = await up()
    harness.kube.remove(POD, "llm", harness.kube.names(POD)[1])
    for number in range(count):
        failed(harness, pod, f"kimi-failed-{number:02d}")
    await harness.tick()
    degraded = harness.condition("Degraded")
    assert (degraded["status"], degraded["reason"]) == ("True", "PodFailing")
    assert f"UnexpectedAdmissionError: {SAID}" in degraded["message"]
    assert more in degraded["message"]


async def test_of_several_in_trouble_one_is_told_and_the_others_are_counted() -> None:
    harness = LoopHarness({"replicas": 3})
    await harness.until_ready()
    waits = {"name": "vllm", "state": {"waiting": {"reason": "ErrImagePull", "message": "gone"}}}
    for pod in harness.kube.names(POD):
        harness.set_ready(pod, ready=False, containerStatuses=[waits])
    await harness.tick()
    assert harness.condition("Degraded")["message"].endswith(" 2 more pods are in trouble.")


async def test_old_ones_say_nothing_of_the_present_nor_do_any_where_all_serve() -> None:
    harness, pod = await up()
    failed(harness, pod, "kimi-failed")
    await harness.tick()
    assert harness.condition("Degraded")["status"] == "False"
    harness.kube.remove(POD, "llm", "kimi-failed")
    failed(harness, pod, "kimi-failed", ago_s=3600)
    harness.kube.remove(POD, "llm", harness.kube.names(POD)[0])
    await harness.tick()
    assert harness.condition("Degraded")["status"] == "False"


async def test_a_canary_whose_pods_are_refused_says_why_it_goes_back() -> None:
    harness = LoopHarness({"replicas": 2, "engine.startupMinutes": 5})
    await harness.until_ready()
    (old,) = harness.kube.names(DEPLOYMENT)
    harness.edit({"engine.image": "vllm/vllm-openai:v0.32.1"})
    for _ in range(900):
        harness.clock.at_s += await harness.tick() or 0
        harness.play_controllers()
        for pod in harness.kube.all_of(POD):
            if not pod["metadata"]["name"].startswith(old):
                harness.kube.remove(POD, "llm", pod["metadata"]["name"])
                failed(harness, pod, pod["metadata"]["name"])
        if (harness.status.get("rollout") or {}).get("stage") == "RolledBack":
            break
    rollout = harness.status["rollout"]
    assert rollout["reason"] == "PodFailing"
    assert SAID in rollout["message"]


@pytest.mark.parametrize(
    ("edit", "reason"),
    [({"draft.method": "telepathy"}, "InvalidSpec"), ({}, "PodFailing")],
)
async def test_a_spec_that_is_refused_hides_no_pod_that_fails(
    edit: dict[str, str], reason: str
) -> None:
    harness, pod = await up()
    harness.edit(edit)
    failed(harness, pod, "kimi-failed")
    harness.kube.remove(POD, "llm", harness.kube.names(POD)[0])
    await harness.tick()
    degraded = harness.condition("Degraded")
    assert degraded["reason"] == reason
    assert f"UnexpectedAdmissionError: {SAID}" in degraded["message"]


async def test_a_spec_that_is_refused_hides_nothing_that_the_api_server_refuses() -> None:
    """What is carried out meanwhile is the last spec that could be."""
    harness, _ = await up()
    harness.edit({"draft.method": "telepathy"})
    await harness.tick()
    (workload,) = harness.kube.names(DEPLOYMENT)
    harness.kube.remove(DEPLOYMENT, "llm", workload)
    harness.kube.fail = lambda verb, kind: (
        KubeError(403, "denied") if kind is DEPLOYMENT and verb in {"create", "apply"} else None
    )
    await harness.run_for(120)
    degraded = harness.condition("Degraded")
    assert degraded["reason"] == "InvalidSpec"
    assert "the last spec that could be is carried out." in degraded["message"]
    assert f"And Deployment {workload} could not be written: denied" in degraded["message"]
