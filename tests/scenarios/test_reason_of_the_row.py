"""The one word that `kubectl get` shows: what to know of a resource first."""

from typing import Any

import pytest

from support.bench import Bench


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
async def test_of_one_that_serves(bench: Bench, changes: dict[str, Any], reason: str) -> None:
    bench.edit(changes)
    await bench.tick()
    assert bench.status["reason"] == reason


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"speculation.tokens": 99}, "InvalidSpec"),
        ({"cache.claimName": "weights"}, "FetchingWeights"),
        ({"replicas": 0}, "ScaledToZero"),
    ],
)
async def test_of_one_that_never_served(changes: dict[str, Any], reason: str) -> None:
    bench = Bench(changes)
    for _ in range(3):
        await bench.tick()
    assert bench.status["reason"] == reason
