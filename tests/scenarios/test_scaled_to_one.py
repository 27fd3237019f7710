"""Autoscalers go from three to one and back, also while a canary is on trial."""

from typing import Any

import pytest

from support.played_cluster import Engine, PlayedCluster

NEW = "vllm/vllm-openai:v0.32.1"
LONGEST_S = 12 * 3600.0


async def tried(engine: Engine, **changes: Any) -> PlayedCluster:
    """Three replicas, and a canary that has a node of its own."""
    cluster = PlayedCluster({"replicas": 3}, {NEW: engine})
    await cluster.settle()
    cluster.edit({"engine.image": NEW, **changes})
    await cluster.run(LONGEST_S, until=lambda: cluster.asked() == {"A": 2, "B": 1})
    return cluster


async def baking(speed: float) -> PlayedCluster:
    """Until the canary was seen, in fewer windows than it takes to judge it."""
    cluster = await tried(Engine(speed=speed))
    await cluster.run(LONGEST_S, until=lambda: cluster.ready().get("B") == 1)
    await cluster.run(420)
    assert cluster.stage == "Canary"
    if speed < 1:
        assert "-30" in cluster.harness.condition("Progressing")["message"]
    return cluster


@pytest.mark.parametrize("paused", [False, True])
async def test_while_the_canary_starts_what_serves_stays(*, paused: bool) -> None:
    cluster = await tried(Engine(start_s=3600))
    await cluster.run(300)
    assert cluster.ready() == {"A": 2}
    cluster.edit({"replicas": 1, "rollout": {"paused": paused}})
    await cluster.run(600)
    assert cluster.ready() == {"A": 1}
    assert cluster.asked() == {"A": 1, "B": 1}


async def test_a_canary_goes_on_being_compared_with_the_one_that_is_left() -> None:
    cluster = await baking(1.0)
    cluster.edit({"replicas": 1})
    await cluster.run(300)
    assert cluster.ready() == {"A": 1, "B": 1}
    await cluster.run(LONGEST_S, until=lambda: cluster.stage == "None")
    assert cluster.ready() == {"B": 1}
    assert cluster.least_ready >= 1


async def test_a_canary_that_was_seen_to_be_worse_is_not_promoted() -> None:
    cluster = await baking(0.7)
    cluster.edit({"replicas": 1})
    await cluster.run(600)
    assert cluster.stage == "RolledBack"
    cluster.edit({"replicas": 3})
    await cluster.run(3600)
    assert cluster.ready() == {"A": 3}, cluster.harness.status["rollout"]


async def test_nor_where_it_comes_back_alone_from_zero() -> None:
    """As an autoscaler does that goes to zero: then the one replica is the canary."""
    cluster = await baking(0.7)
    cluster.edit({"replicas": 0})
    await cluster.run(600)
    cluster.edit({"replicas": 1})
    await cluster.run(LONGEST_S, until=lambda: cluster.stage != "Canary")
    assert cluster.stage == "RolledBack", cluster.harness.status["rollout"]
    await cluster.run(900)
    assert cluster.ready() == {"A": 1}


async def test_a_good_one_that_comes_back_alone_from_zero_is_promoted_once_it_is_ready() -> None:
    cluster = await baking(1.0)
    cluster.edit({"replicas": 0})
    await cluster.run(600)
    cluster.edit({"replicas": 1})
    await cluster.run(600, until=lambda: cluster.ready() == {"B": 1})
    await cluster.run(60)
    assert cluster.stage == "None", cluster.harness.status["rollout"]


async def test_a_canary_of_a_single_replica_takes_its_place_as_before() -> None:
    cluster = PlayedCluster({"replicas": 1}, nodes=1)
    await cluster.settle()
    cluster.edit({"engine.image": NEW})
    await cluster.run(900, until=lambda: cluster.ready() == {"B": 1})
    await cluster.run(60)
    assert cluster.stage == "None"
