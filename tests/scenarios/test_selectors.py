"""Selectors are ours as a whole: what is added to one selects fewer pods, or none."""

import copy
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from fathom.cluster.kinds import (
    CONFIG_MAP,
    POD_DISRUPTION_BUDGET,
    POD_MONITOR,
    SERVICE,
    Kind,
    ServedApis,
)
from support.loop_harness import LoopHarness

SERVED = ServedApis(
    kinds=frozenset((each.api_version, each.kind) for each in (POD_DISRUPTION_BUDGET, POD_MONITOR))
)
ADDED = {"rollouts-pod-template-hash": "6f9cd"}
"""As Argo Rollouts does."""


async def up() -> LoopHarness:
    harness = LoopHarness({"replicas": 2}, served=SERVED)
    await harness.until_ready()
    return harness


def selector_of(harness: LoopHarness, kind: Kind) -> dict[str, Any]:
    (found,) = harness.kube.all_of(kind)
    selector: dict[str, Any] = found["spec"]["selector"]
    return selector if kind == SERVICE else selector["matchLabels"]


def changed(harness: LoopHarness, kind: Kind, selector: dict[str, Any]) -> None:
    """Somebody gives an object another selector."""
    found = copy.deepcopy(harness.kube.all_of(kind)[0])
    found["spec"]["selector"] = selector if kind == SERVICE else {"matchLabels": selector}
    harness.kube.put(kind, found)


@pytest.mark.parametrize("kind", [SERVICE, POD_DISRUPTION_BUDGET, POD_MONITOR], ids=str)
@pytest.mark.parametrize("how", ["added", "replaced", "emptied"])
async def test_a_changed_selector_is_put_right_by_one_write(kind: Kind, how: str) -> None:
    harness = await up()
    ours = selector_of(harness, kind)
    changed(harness, kind, {"added": ours | ADDED, "replaced": {"app": "x"}, "emptied": {}}[how])
    harness.kube.writes.clear()
    await harness.tick()
    assert selector_of(harness, kind) == ours
    assert len([each for each in harness.kube.writes if each.kind == kind.kind]) == 1
    assert harness.condition("Degraded")["status"] == "False"
    harness.kube.writes.clear()
    await harness.tick()
    assert harness.kube.writes == []


async def answers_in_an_hour(harness: LoopHarness, change: Callable[[], Awaitable[None]]) -> int:
    """How often the Service is written while it is changed again and again."""
    until_s = harness.clock.at_s + 3600
    harness.kube.writes.clear()
    while harness.clock.at_s < until_s:
        await change()
    return len([each for each in harness.kube.writes if each.kind == SERVICE.kind])


async def test_who_changes_it_each_time_is_answered_once_a_minute_and_it_is_degraded() -> None:
    harness = await up()
    ours = selector_of(harness, SERVICE)

    async def change() -> None:
        changed(harness, SERVICE, ours | ADDED)
        harness.loop.wake()
        await harness.run_for(10)

    assert 55 <= await answers_in_an_hour(harness, change) <= 65
    degraded = harness.condition("Degraded")
    assert (degraded["status"], degraded["reason"]) == ("True", "ChildRefused")
    assert "rollouts-pod-template-hash should not be there" in degraded["message"]
    assert "once a minute" in degraded["message"]


async def test_who_changes_more_than_the_selector_is_answered_no_oftener() -> None:
    harness = await up()
    ours = selector_of(harness, SERVICE)

    async def change() -> None:
        changed(harness, SERVICE, ours | ADDED)
        harness.kube.find(SERVICE, "kimi")["spec"]["ports"][0]["port"] = 9999
        await harness.tick()
        await harness.tick()
        harness.clock.at_s += 15

    assert await answers_in_an_hour(harness, change) <= 130
    assert "is changed back by something else" in harness.condition("Degraded")["message"]


async def test_a_selector_is_put_right_where_no_spec_can_be_carried_out() -> None:
    harness = await up()
    ours = selector_of(harness, SERVICE)
    # The newest spec is bad, and what was known of the one before is lost.
    harness.edit({"engine.version": "newest"})
    harness.kube.remove(CONFIG_MAP, "llm", "kimi-tuning")
    harness.restart()
    await harness.run_for(30)
    assert harness.condition("Degraded")["reason"] == "InvalidSpec"
    for selector in (ours | ADDED, {"app": "x"}):
        changed(harness, SERVICE, selector)
        await harness.run_for(30)
        assert selector_of(harness, SERVICE) == ours
