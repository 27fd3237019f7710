"""What is left of a pass's writes when one of them fails."""

import asyncio
from typing import Any

import pytest

from fathom.adapters.ports import KubeError
from fathom.cluster.kinds import CONFIG_MAP, POD, SERVICE
from fathom.cluster.manifest import Manifest, Seen
from fathom.reconcile.operations import Create, Patch
from fathom.reconcile.write_retries import Outcome
from fathom.runtime.child_cache import ChildCache
from fathom.runtime.telemetry import Telemetry
from fathom.runtime.writer import ATTEMPTS_AT_ONCE, Writer
from support.fake_kube import FakeKube
from support.leaping_time import in_leaping_time
from support.loop_harness import KEY, ManualClock


def creation(name: str) -> Create:
    kind = SERVICE if name == "bad" else CONFIG_MAP
    metadata: Any = {"name": name, "namespace": "llm"}
    return Create(kind, {"metadata": metadata}, "it does not exist")


OPERATIONS = tuple(map(creation, ("first", "second", "bad", "last")))


async def carried_out(status: int) -> tuple[FakeKube, Outcome]:
    kube = FakeKube()
    kube.fail = lambda _verb, kind: KubeError(status, "no.") if kind == SERVICE else None
    writer = Writer(kube, ChildCache(ManualClock()), KEY, Telemetry())
    return kube, await writer.carry_out(OPERATIONS)


@pytest.mark.parametrize("status", [0, 409, 429, 503])
async def test_what_may_pass_by_itself_leaves_it_and_the_rest_for_later(status: int) -> None:
    kube, outcome = await carried_out(status)
    assert kube.names(CONFIG_MAP) == ["first", "second"]
    assert outcome.left(OPERATIONS) == OPERATIONS[2:]
    assert outcome.broke_off == (OPERATIONS[2], "Service bad could not be written: no.")
    assert outcome.outdated == (status == 409)


async def test_what_is_refused_for_good_stops_nothing_else() -> None:
    kube, outcome = await carried_out(403)
    assert kube.names(CONFIG_MAP) == ["first", "last", "second"]
    assert outcome.left(OPERATIONS) == OPERATIONS[2:3]
    assert outcome.broke_off is None


class SlowKube(FakeKube):
    """Takes its time for each pod that is patched, or never answers."""

    def __init__(self, takes_s: float) -> None:
        super().__init__()
        self.takes_s = takes_s
        self.at_once = self.most_at_once = 0

    async def merge(self, *asked: Any, **named: Any) -> Manifest | None:
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            await asyncio.sleep(self.takes_s)
        finally:
            self.at_once -= 1
        return await super().merge(*asked, **named)


def nudge(kube: FakeKube, name: str) -> Patch:
    kube.put(POD, {"metadata": {"name": name, "namespace": "llm"}})
    change: Any = {"metadata": {"annotations": {"nudged": "yes"}}}
    return Patch(
        kind=POD,
        name=name,
        patch=change,
        seen=Seen.of(kube.find(POD, name)),
        why="its depth has changed",
    )


async def patched(kube: SlowKube, within_s: float) -> float:
    """Seconds that it took."""
    writer = Writer(kube, ChildCache(ManualClock()), KEY, Telemetry())
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    await writer.attempt_all([nudge(kube, f"kimi-{number}") for number in range(64)], within_s)
    return loop.time() - began_s


@in_leaping_time
async def test_many_attempts_are_made_at_the_same_time_within_bounds() -> None:
    kube = SlowKube(0.05)
    took_s = await patched(kube, within_s=30)
    assert took_s == pytest.approx(64 / ATTEMPTS_AT_ONCE * kube.takes_s)
    assert all(pod["metadata"]["annotations"] for pod in kube.all_of(POD))
    assert kube.most_at_once == ATTEMPTS_AT_ONCE


@in_leaping_time
async def test_attempts_that_hang_are_given_up_together() -> None:
    kube = SlowKube(3600)
    assert await patched(kube, within_s=0.1) == pytest.approx(0.1)
    assert not any("annotations" in pod["metadata"] for pod in kube.all_of(POD))
    assert kube.at_once == 0
