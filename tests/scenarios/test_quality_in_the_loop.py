"""A quality check from its annotation to its result, through the real tuner."""

import asyncio
import json
from typing import Any

import pytest

from fathom.api import names
from fathom.cluster.kinds import CONFIG_MAP, POD
from fathom.tuning.tuner import decide
from support.loop_harness import LoopHarness


def document(harness: LoopHarness) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        harness.kube.find(CONFIG_MAP, "kimi-depth")["data"]["depth.json"]
    )
    return found


async def checked(harness: LoopHarness, request_id: str) -> list[dict[str, int]]:
    """Ask, and pass until there is an answer; the depths that pods were held at meanwhile."""
    harness.resource["metadata"]["annotations"] = {names.ANNOTATION_CHECK_QUALITY: request_id}
    held: list[dict[str, int]] = []
    for _ in range(40):
        harness.metrics.generation = document(harness)["generation"]
        await harness.tick()
        # What was asked in the background gets its turn.
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        now = {pod: ranges[0][2] for pod, ranges in document(harness)["pods"].items()}
        if not held or held[-1] != now:
            held.append(now)
        if harness.status.get("quality", {}).get("requestId") == request_id and not now:
            return held
        harness.clock.at_s += 5
    raise AssertionError(f"no result: {held}")


@pytest.fixture
async def serving() -> LoopHarness:
    harness = LoopHarness({"replicas": 2}, decide=decide)
    await harness.until_ready()
    return harness


async def test_one_replica_at_depth_0_beside_one_at_depth(serving: LoopHarness) -> None:
    held = await checked(serving, "monday")
    first, second = sorted(serving.kube.names(POD))
    (both,) = [each for each in held if each]
    assert sorted(both.values()) == [0, 3]
    assert set(serving.completions.asked) == {first, second}
    assert {model for model, _ in serving.completions.requests} == {"nvidia/Kimi-K2.6-NVFP4"}
    quality = serving.status["quality"]
    assert (quality["requestId"], quality["result"]) == ("monday", "Lossless")
    told = [e.body for e in serving.kube.written("Event") if e.body["reason"] == "QualityChecked"]
    assert len(told) == 1
    assert "quality.json" not in serving.kube.find(CONFIG_MAP, "kimi-tuning")["data"]


async def test_the_same_request_is_answered_once(serving: LoopHarness) -> None:
    await checked(serving, "monday")
    asked = len(serving.completions.asked)
    serving.restart()
    await serving.run_for(600)
    assert len(serving.completions.asked) == asked
    await checked(serving, "tuesday")
    assert len(serving.completions.asked) == 2 * asked


async def test_an_operator_that_is_killed_in_between_goes_on(serving: LoopHarness) -> None:
    serving.resource["metadata"]["annotations"] = {names.ANNOTATION_CHECK_QUALITY: "monday"}
    for _ in range(2):
        serving.metrics.generation = document(serving)["generation"]
        await serving.tick()
    assert document(serving)["pods"]
    serving.restart()
    await checked(serving, "monday")
    assert serving.status["quality"]["result"] == "Lossless"
