"""Selectors are ours as a whole: what is added to one selects fewer pods, or none."""

import copy
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from fathom.core.cluster.kinds import POD_DISRUPTION_BUDGET, POD_MONITOR, SERVICE, Kind
from fathom.core.cluster.served import ServedApis
from support.bench import Bench

SERVED = ServedApis(
    frozenset((each.api_version, each.kind) for each in (POD_DISRUPTION_BUDGET, POD_MONITOR))
)
ADDED = {"rollouts-pod-template-hash": "6f9cd"}
"""As Argo Rollouts does."""


async def up() -> Bench:
    bench = Bench({"replicas": 2}, served=SERVED)
    await bench.until_ready()
    return bench


def selector_of(bench: Bench, kind: Kind) -> dict[str, Any]:
    (found,) = bench.kube.all_of(kind)
    selector: dict[str, Any] = found["spec"]["selector"]
    return selector if kind == SERVICE else selector["matchLabels"]


def changed(bench: Bench, kind: Kind, selector: dict[str, Any]) -> None:
    """Somebody gives an object another selector."""
    found = copy.deepcopy(bench.kube.all_of(kind)[0])
    found["spec"]["selector"] = selector if kind == SERVICE else {"matchLabels": selector}
    bench.kube.put(kind, found)


@pytest.mark.parametrize("kind", [SERVICE, POD_DISRUPTION_BUDGET, POD_MONITOR], ids=str)
@pytest.mark.parametrize("how", ["added", "replaced", "emptied"])
async def test_a_changed_selector_is_put_right_by_one_write(kind: Kind, how: str) -> None:
    bench = await up()
    ours = selector_of(bench, kind)
    changed(bench, kind, {"added": ours | ADDED, "replaced": {"app": "x"}, "emptied": {}}[how])
    bench.kube.writes.clear()
    await bench.tick()
    assert selector_of(bench, kind) == ours
    assert len([each for each in bench.kube.writes if each.kind == kind.kind]) == 1
    assert bench.condition("Degraded")["status"] == "False"
    bench.kube.writes.clear()
    await bench.tick()
    assert bench.kube.writes == []


async def answers_in_an_hour(bench: Bench, change: Callable[[], Awaitable[None]]) -> int:
    """How often the Service is written while it is changed again and again."""
    until_s = bench.clock.at_s + 3600
    bench.kube.writes.clear()
    while bench.clock.at_s < until_s:
        await change()
    return len([each for each in bench.kube.writes if each.kind == SERVICE.kind])


async def test_who_changes_it_each_time_is_answered_once_a_minute_and_it_is_degraded() -> None:
    bench = await up()
    ours = selector_of(bench, SERVICE)

    async def change() -> None:
        changed(bench, SERVICE, ours | ADDED)
        bench.loop.wake()
        await bench.run_for(10)

    assert 55 <= await answers_in_an_hour(bench, change) <= 65
    degraded = bench.condition("Degraded")
    assert (degraded["status"], degraded["reason"]) == ("True", "ChildRefused")
    assert "rollouts-pod-template-hash should not be there" in degraded["message"]
    assert "once a minute" in degraded["message"]


async def test_who_changes_more_than_the_selector_is_answered_no_oftener() -> None:
    bench = await up()
    ours = selector_of(bench, SERVICE)

    async def change() -> None:
        changed(bench, SERVICE, ours | ADDED)
        bench.kube.find(SERVICE, "kimi")["spec"]["ports"][0]["port"] = 9999
        await bench.tick()
        await bench.tick()
        bench.clock.at_s += 15

    assert await answers_in_an_hour(bench, change) <= 130
    assert "is changed back by something else" in bench.condition("Degraded")["message"]
