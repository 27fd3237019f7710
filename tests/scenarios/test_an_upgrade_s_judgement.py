"""An upgrade to a Fathom that starts a spec otherwise: what is under way stays on its way."""

from typing import Any

import pytest
from packaging.specifiers import SpecifierSet

from fathom.cluster.kinds import CONFIG_MAP, DEPLOYMENT
from fathom.engine import live_depth
from fathom.engine.capability_table import LIVE_DEPTH, Capability
from fathom.reconcile import specs
from fathom.tuning.tuner import decide
from scenarios.test_quality_in_the_loop import document
from support.loop_harness import LoopHarness

NONE = Capability(SpecifierSet("<0"), LIVE_DEPTH.methods)


async def fleet(changes: dict[str, Any] | None = None) -> LoopHarness:
    harness = LoopHarness({"replicas": 3, **(changes or {})})
    await harness.until_ready()
    harness.metrics.generation = 1
    return harness


def upgrade(harness: LoopHarness, monkeypatch: pytest.MonkeyPatch, *no_more: str) -> None:
    """To a Fathom in which no engine has these capabilities."""
    for each in no_more:
        monkeypatch.setattr(live_depth, each, NONE)
    # Another process has parsed nothing yet.
    specs._parsed.cache_clear()
    harness.restart()


async def on_trial(harness: LoopHarness, changes: dict[str, Any]) -> str:
    """An edit whose canary is ready; the stable Deployment's name."""
    (stable,) = harness.kube.names(DEPLOYMENT)
    harness.edit(changes)
    await harness.run_for(30)
    harness.play_controllers()
    await harness.run_for(60)
    assert len(harness.kube.names(DEPLOYMENT)) == 2
    return stable


async def for_hours(harness: LoopHarness) -> None:
    for _ in range(40):
        await harness.run_for(120)
        harness.play_controllers()


@pytest.mark.parametrize(
    ("before", "canary", "no_more"),
    [
        ({"speculation.maxTokens": 7}, {"speculation.maxTokens": 15}, ("LIVE_DEPTH",)),
        (
            {"speculation.tuning.mode": "Auto"},
            {"speculation.tuning.mode": "Static"},
            ("LIVE_DEPTH", "COUNTED"),
        ),
    ],
    ids=["maxTokens", "mode"],
)
async def test_an_edit_that_is_taken_back_goes_back_to_the_pods_that_it_had(
    monkeypatch: pytest.MonkeyPatch,
    before: dict[str, Any],
    canary: dict[str, Any],
    no_more: tuple[str, ...],
) -> None:
    harness = await fleet(before)
    stable = await on_trial(harness, canary)
    upgrade(harness, monkeypatch, *no_more)
    await harness.run_for(60)
    harness.edit(before)
    await for_hours(harness)
    assert harness.kube.names(DEPLOYMENT) == [stable]
    assert harness.condition("Degraded")["status"] == "False"


async def test_pods_that_read_nothing_get_no_write_a_minute(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    specs._parsed.cache_clear()
    with monkeypatch.context() as earlier:
        earlier.setattr(live_depth, "LIVE_DEPTH", NONE)
        harness = await fleet()
    upgrade(harness, monkeypatch)
    harness.decide = decide
    await harness.run_for(600)
    written = len(harness.kube.news)
    await harness.run_for(3600)
    assert len(harness.kube.news) == written
    assert document(harness)["generation"] > 0


async def test_the_document_is_made_again_while_pods_of_a_paused_rollout_read_it() -> None:
    harness = await fleet()
    harness.decide = decide
    await harness.run_for(120)
    await on_trial(harness, {"speculation.tuning.mode": "Static"})
    harness.edit({"rollout": {"paused": True}})
    await harness.run_for(60)
    harness.kube.remove(CONFIG_MAP, "llm", "kimi-depth")
    harness.loop.wake()
    await harness.run_for(60)
    assert document(harness)["schedule"] == [[1, 1024, 3]]
    assert document(harness)["pods"] == {}


async def test_the_depth_shown_is_that_of_new_pods_while_old_ones_still_read_theirs() -> None:
    harness = await fleet()
    harness.edit({"speculation.drafting": "Disabled"})
    shown = []
    for _ in range(200):
        harness.clock.at_s += await harness.tick() or 0
        harness.play_controllers()
        if harness.status.get("rollout", {}).get("stage") == "Promoted":
            assert len(harness.kube.names(DEPLOYMENT)) == 2
            shown.append(harness.status["depth"]["summary"])
    assert set(shown) == {"off"}
    assert len(harness.kube.names(DEPLOYMENT)) == 1
    assert harness.status["depth"]["summary"] == "off"
