"""An upgrade to a Fathom that starts a spec otherwise: what is under way stays on its way."""

from typing import Any

import pytest
from packaging.specifiers import SpecifierSet

from fathom.core.cluster.kinds import CONFIG_MAP, DEPLOYMENT
from fathom.engine import live_depth
from fathom.engine.capability_table import LIVE_DEPTH, Capability
from fathom.reconcile import intent
from fathom.tuning.tuner import decide
from scenarios.test_quality_in_the_loop import document
from support.bench import Bench

NONE = Capability(SpecifierSet("<0"), LIVE_DEPTH.methods)


async def fleet(changes: dict[str, Any] | None = None) -> Bench:
    bench = Bench({"replicas": 3, **(changes or {})})
    await bench.until_ready()
    bench.metrics.generation = 1
    return bench


def upgrade(bench: Bench, monkeypatch: pytest.MonkeyPatch, *no_more: str) -> None:
    """To a Fathom in which no engine has these capabilities."""
    for each in no_more:
        monkeypatch.setattr(live_depth, each, NONE)
    # Another process has parsed nothing yet.
    intent._parsed.cache_clear()
    bench.restart()


async def on_trial(bench: Bench, changes: dict[str, Any]) -> str:
    """An edit whose canary is ready; the stable Deployment's name."""
    (stable,) = bench.kube.names(DEPLOYMENT)
    bench.edit(changes)
    await bench.run_for(30)
    bench.play_controllers()
    await bench.run_for(60)
    assert len(bench.kube.names(DEPLOYMENT)) == 2
    return stable


async def for_hours(bench: Bench) -> None:
    for _ in range(40):
        await bench.run_for(120)
        bench.play_controllers()


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
    bench = await fleet(before)
    stable = await on_trial(bench, canary)
    upgrade(bench, monkeypatch, *no_more)
    await bench.run_for(60)
    bench.edit(before)
    await for_hours(bench)
    assert bench.kube.names(DEPLOYMENT) == [stable]
    assert bench.condition("Degraded")["status"] == "False"


async def test_pods_that_read_nothing_get_no_write_a_minute(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    intent._parsed.cache_clear()
    with monkeypatch.context() as earlier:
        earlier.setattr(live_depth, "LIVE_DEPTH", NONE)
        bench = await fleet()
    upgrade(bench, monkeypatch)
    bench.decide = decide
    await bench.run_for(600)
    written = len(bench.kube.writes)
    await bench.run_for(3600)
    assert len(bench.kube.writes) == written
    assert document(bench)["generation"] > 0


async def test_the_document_is_made_again_while_pods_of_a_paused_rollout_read_it() -> None:
    bench = await fleet()
    bench.decide = decide
    await bench.run_for(120)
    await on_trial(bench, {"speculation.tuning.mode": "Static"})
    bench.edit({"rollout": {"paused": True}})
    await bench.run_for(60)
    bench.kube.remove(CONFIG_MAP, "llm", "kimi-depth")
    bench.loop.wake()
    await bench.run_for(60)
    assert document(bench)["schedule"] == [[1, 1024, 3]]
    assert document(bench)["pods"] == {}


async def test_the_depth_shown_is_that_of_new_pods_while_old_ones_still_read_theirs() -> None:
    bench = await fleet()
    bench.edit({"speculation.drafting": "Disabled"})
    shown = []
    for _ in range(200):
        bench.clock.at_s += await bench.tick() or 0
        bench.play_controllers()
        if bench.status.get("rollout", {}).get("stage") == "Promoted":
            assert len(bench.kube.names(DEPLOYMENT)) == 2
            shown.append(bench.status["depth"]["summary"])
    assert set(shown) == {"off"}
    assert len(bench.kube.names(DEPLOYMENT)) == 1
    assert bench.status["depth"]["summary"] == "off"
