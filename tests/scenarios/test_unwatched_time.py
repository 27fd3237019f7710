"""Time in which no operator looks: it is no bake, and nobody's patience."""

from typing import Any

import pytest

from fathom.cluster.kinds import CONFIG_MAP
from support.played_cluster import Engine, PlayedCluster

NEW = "vllm/vllm-openai:v0.32.1"
LONGEST_S = 12 * 3600.0


async def canary_of(cluster: PlayedCluster) -> None:
    """At rest, then edited, until the canary serves."""
    await cluster.settle()
    cluster.edit({"engine.image": NEW})
    await cluster.run(LONGEST_S, until=lambda: cluster.ready().get("B") == 1)


def said(cluster: PlayedCluster) -> Any:
    rollout = cluster.harness.status["rollout"]
    return rollout["stage"], rollout["reason"], rollout["message"]


@pytest.mark.parametrize("seen_s", [60, 300])
async def test_time_that_nobody_watched_is_no_bake(seen_s: float) -> None:
    """The operator is away for little more than an hour while a canary bakes that is slower."""
    cluster = PlayedCluster({"replicas": 3}, {NEW: Engine(speed=0.8)})
    await canary_of(cluster)
    await cluster.run(seen_s)
    assert cluster.stage == "Canary"
    cluster.away(3700)
    await cluster.run(60)
    assert cluster.stage == "Canary", said(cluster)
    await cluster.run(LONGEST_S, until=lambda: cluster.stage != "Canary")
    assert said(cluster)[:2] == ("RolledBack", "CanarySlower"), said(cluster)


@pytest.mark.parametrize("seen_s", [-200, 600], ids=["starting", "baking"])
async def test_an_operator_that_was_away_gives_no_canary_up(seen_s: float) -> None:
    cluster = PlayedCluster({"replicas": 3}, {NEW: Engine(start_s=600)})
    await cluster.settle()
    cluster.edit({"engine.image": NEW})
    await cluster.run(LONGEST_S, until=lambda: cluster.asked().get("B") == 1)
    await cluster.run(600 + seen_s)
    cluster.away(20 * 3600)
    await cluster.run(60)
    assert cluster.stage == "Canary", said(cluster)
    await cluster.run(LONGEST_S, until=lambda: cluster.stage != "Canary")
    assert cluster.stage == "Promoted", said(cluster)


async def test_a_canary_that_still_starts_after_an_absence_has_the_rest_of_its_time() -> None:
    """A cluster that is shut down over night takes its operator with it."""
    never = Engine(start_s=1e9)
    cluster = PlayedCluster({"replicas": 3, "engine.startupMinutes": 60}, {NEW: never})
    await cluster.settle()
    cluster.edit({"engine.image": NEW})
    await cluster.run(1800)
    cluster.away(10 * 3600)
    await cluster.run(600)
    assert cluster.stage == "Canary", said(cluster)
    await cluster.run(4200, until=lambda: cluster.stage == "RolledBack")
    assert said(cluster)[1] == "CanaryNotReady"


async def test_an_operator_that_never_stays_comes_to_a_verdict_all_the_same() -> None:
    """A loop that is killed every few minutes still watches, as far as it does."""
    cluster = PlayedCluster({"replicas": 3})
    await canary_of(cluster)
    began_s = cluster.harness.clock.at_s
    while cluster.stage == "Canary":
        await cluster.run(200)
        cluster.away(30)
        assert cluster.harness.clock.at_s - began_s < 2 * 3600, said(cluster)
    assert cluster.stage == "Promoted"


async def test_a_pause_that_began_in_an_absence_is_counted_once() -> None:
    cluster = PlayedCluster({"replicas": 3})
    await canary_of(cluster)
    await cluster.run(600)
    cluster.away(3600)
    cluster.edit({"rollout": {"paused": True}})
    await cluster.run(3600)
    cluster.edit({"rollout": {"paused": False}})
    resumed_s = cluster.harness.clock.at_s
    await cluster.run(30)
    watch = cluster.rollout.watch if cluster.rollout else None
    assert watch is not None
    baked_s = resumed_s - (watch.ready_since_s or 0.0)
    assert 500 <= baked_s <= 800, baked_s


async def test_what_an_earlier_operator_kept_does_not_say_when_it_looked_last() -> None:
    """It was away for hours, and is mended by an upgrade."""
    cluster = PlayedCluster({"replicas": 3}, {NEW: Engine(speed=0.8)})
    await canary_of(cluster)
    await cluster.run(300)
    cluster.away(7 * 3600)
    kept = cluster.harness.kube.find(CONFIG_MAP, "kimi-tuning")
    del kept["data"]["lookedAt.json"]
    cluster.harness.kube.put(CONFIG_MAP, kept)
    cluster.harness.restart()
    await cluster.run(60)
    assert cluster.stage == "Canary", said(cluster)


async def test_a_canary_that_loads_at_an_idle_fleet_is_not_written_about() -> None:
    cluster = PlayedCluster({"replicas": 3}, {NEW: Engine(start_s=1e9)}, traffic=False)
    await cluster.settle()
    cluster.edit({"engine.image": NEW})
    await cluster.run(600)
    cluster.harness.kube.writes.clear()
    await cluster.run(3600)
    assert cluster.harness.kube.news == []
