"""The one word that `kubectl get` shows: what to know of a resource first."""

from typing import Any

import pytest

from support.loop_harness import LoopHarness


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, "AllReplicasReady"),
        ({"speculation.tokens": 99}, "InvalidSpec"),
        (
            {"rollout": {"paused": True}, "engine.image": "vllm/vllm-openai:v0.33.0"},
            "RolloutPaused",
        ),
        ({"replicas": 3}, "Scaling"),
    ],
)
async def test_of_one_that_serves(
    harness: LoopHarness, changes: dict[str, Any], reason: str
) -> None:
    harness.edit(changes)
    await harness.tick()
    assert harness.status["reason"] == reason


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"speculation.tokens": 99}, "InvalidSpec"),
        ({"cache.claimName": "weights"}, "FetchingWeights"),
        ({"replicas": 0}, "ScaledToZero"),
    ],
)
async def test_of_one_that_never_served(changes: dict[str, Any], reason: str) -> None:
    harness = LoopHarness(changes)
    for _ in range(3):
        await harness.tick()
    assert harness.status["reason"] == reason
