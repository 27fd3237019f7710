"""The registry of loops: one per resource, none of which can stop another."""

import asyncio
import copy
import gc
from collections.abc import Awaitable
from contextvars import Context, ContextVar
from dataclasses import replace
from weakref import ReferenceType, ref

import pytest

from fathom import times
from fathom.adapters.ports import KubeError
from fathom.api import names
from fathom.cluster.kinds import SERVICE, SPECULATIVE_DEPLOYMENT, Kind, ObjectKey
from fathom.cluster.manifest import Manifest
from fathom.runtime.loop import RESYNC_S
from fathom.runtime.loop_registry import (
    PASSES_AT_ONCE,
    STUCK_AFTER_S,
    Loops,
    Turns,
    pass_after_pass,
)
from fathom.runtime.ports import SHORTEST_SLEEP_S, Pace
from support.leaping_time import in_leaping_time
from support.loop_harness import AT_ONCE, KEY, LoopHarness, holding
from support.waiting import turns, until

OTHER = ObjectKey("llm", "other")


async def test_a_poke_is_a_pass(harness: LoopHarness, loops: Loops) -> None:
    loops.seen(KEY)
    await until(lambda: harness.metrics.asked, "a pass")
    harness.kube.remove(SERVICE, "llm", "kimi")
    loops.wake(KEY)
    await until(lambda: harness.kube.names(SERVICE) == ["kimi"], "the Service to be made anew")


async def test_a_loop_ends_with_its_resource_and_starts_with_the_next(
    harness: LoopHarness, loops: Loops
) -> None:
    loops.seen(KEY)
    await until(lambda: harness.metrics.asked, "a pass")
    resource = harness.resource
    harness.kube.remove(SPECULATIVE_DEPLOYMENT, "llm", "kimi")
    loops.seen(KEY)
    await until(lambda: len(loops) == 0, "all loops to end")
    harness.kube.put(SPECULATIVE_DEPLOYMENT, resource)
    loops.seen(KEY)
    assert len(loops) == 1


async def test_a_resource_made_anew_during_the_last_look_gets_its_loop(
    harness: LoopHarness, loops: Loops
) -> None:
    """The look finds it gone; before the loop has ended, it is there again, and that is told."""
    resource, read = harness.resource, harness.kube.get
    looked = 0

    async def made_anew_meanwhile(kind: Kind, namespace: str, name: str) -> Manifest | None:
        nonlocal looked
        found = await read(kind, namespace, name)
        looked += 1
        if looked == 1:
            harness.kube.put(SPECULATIVE_DEPLOYMENT, resource)
            loops.seen(KEY)
        return found

    harness.kube.remove(SPECULATIVE_DEPLOYMENT, "llm", "kimi")
    harness.metrics.asked = []
    harness.kube.get = made_anew_meanwhile  # type: ignore[method-assign]
    loops.seen(KEY)
    await until(lambda: harness.metrics.asked, "a pass")
    assert len(loops) == 1


async def test_a_resource_made_anew_while_its_loop_ends_gets_another(
    harness: LoopHarness, loops: Loops
) -> None:
    """At each moment of the end, from the last look to the loop's removal from the registry."""
    resource = harness.resource
    for moment in range(12):
        harness.kube.remove(SPECULATIVE_DEPLOYMENT, "llm", "kimi")
        loops.seen(KEY)
        for _ in range(moment):
            await asyncio.sleep(0)
        harness.kube.put(SPECULATIVE_DEPLOYMENT, resource)
        harness.metrics.asked = []
        loops.seen(KEY)
        await until(lambda: harness.metrics.asked, "a pass")
    assert len(loops) == 1


async def test_an_event_about_what_is_gone_costs_one_look(loops: Loops) -> None:
    loops.seen(OTHER)
    await until(lambda: len(loops) == 0, "all loops to end")


@pytest.mark.parametrize(("heard", "left"), [("deleted", 0), ("", 1), ("deleted, made", 1)])
async def test_what_was_deleted_and_may_not_be_read_any_more_is_gone(
    heard: str, left: int, harness: LoopHarness, loops: Loops
) -> None:
    """As where the operator's Role goes with the namespace; a 403 alone may pass by itself."""
    loops.seen(KEY)
    await until(lambda: harness.metrics.asked, "a pass")
    asked = 0

    def forbidden(verb: str, kind: Kind) -> KubeError | None:
        nonlocal asked
        if (verb, kind) != ("get", SPECULATIVE_DEPLOYMENT):
            return None
        asked += 1
        return KubeError(403, "speculativedeployments is forbidden")

    harness.kube.fail = forbidden
    if "deleted" in heard:
        loops.deleted(KEY)
    if "made" in heard:
        loops.changed(KEY, 1, {}, "77")
    loops.wake(KEY)
    await until(lambda: asked > 0, "the resource to be asked for")
    await turns()
    assert len(loops) == left


async def test_what_is_deleted_and_has_no_loop_gets_none(loops: Loops) -> None:
    loops.deleted(OTHER)
    assert len(loops) == 0


async def test_nobody_is_poked_for_a_stranger(loops: Loops) -> None:
    loops.wake(OTHER)
    assert len(loops) == 0


async def test_a_loop_that_hangs_is_overdue(harness: LoopHarness, loops: Loops) -> None:
    never: Awaitable[None] = asyncio.get_running_loop().create_future()

    async def hang(*_: object) -> None:
        await never

    harness.kube.get = hang  # type: ignore[method-assign,assignment]
    loops.seen(KEY)
    await asyncio.sleep(0)
    assert loops.overdue() == ()
    harness.clock.at_s += STUCK_AFTER_S + 1
    assert loops.overdue() == (KEY,)


async def test_a_clock_that_is_set_makes_no_loop_overdue(
    harness: LoopHarness, loops: Loops
) -> None:
    """Loops sleep by a clock that nobody sets, and a liveness probe that fails ends them all."""
    labels = {"resource": KEY.kind.kind, "namespace": KEY.namespace, "name": KEY.name}
    registry = harness.world.telemetry.registry
    loops.seen(KEY)
    for set_forward_s in (2 * STUCK_AFTER_S, 0.0, -2 * STUCK_AFTER_S):
        await until(lambda: harness.metrics.asked, "a pass")
        harness.clock.set_forward_s = set_forward_s
        assert loops.overdue() == ()
        assert registry.get_sample_value("fathom_reconcile_overdue_seconds", labels) == 0
        harness.metrics.asked = []
        loops.wake(KEY)


async def test_a_clock_that_is_set_back_hides_no_loop_that_hangs(
    harness: LoopHarness, loops: Loops
) -> None:
    loops.seen(KEY)
    harness.clock.at_s += STUCK_AFTER_S + 1
    harness.clock.set_forward_s = -2 * STUCK_AFTER_S
    assert loops.overdue() == (KEY,)


async def test_stopping_changes_nothing(harness: LoopHarness, loops: Loops) -> None:
    loops.seen(KEY)
    await until(lambda: harness.metrics.asked, "a pass")
    await loops.stop()
    assert harness.kube.writes == []
    assert len(loops) == 0


async def test_a_loop_does_not_hold_what_it_was_started_in(
    harness: LoopHarness, loops: Loops
) -> None:
    """Kopf's handlers run in a context that holds the event, with all of the resource."""

    class Event: ...

    held = ContextVar[Event]("event")

    def handle() -> ReferenceType[Event]:
        event = Event()
        held.set(event)
        loops.seen(KEY)
        return ref(event)

    event = Context().run(handle)
    await until(lambda: harness.metrics.asked, "a pass")
    gc.collect()
    assert event() is None
    assert len(loops) == 1


async def test_once_closed_no_loop_acts_nor_begins(harness: LoopHarness, loops: Loops) -> None:
    loops.seen(KEY)
    await until(lambda: harness.metrics.asked, "a pass")
    loops.close()
    await until(lambda: len(loops) == 0, "all loops to end")
    loops.seen(KEY)
    loops.changed(OTHER, 1, {}, "1")
    assert len(loops) == 0


async def test_loops_that_begin_together_take_turns(harness: LoopHarness, loops: Loops) -> None:
    """Else all their later passes come together, too, and an edit waits behind a thousand."""
    looking, most = 0, 0
    read = harness.kube.get

    async def slow(kind: Kind, namespace: str, name: str) -> Manifest | None:
        nonlocal looking, most
        looking += 1
        most = max(most, looking)
        await asyncio.sleep(0)
        looking -= 1
        return await read(kind, namespace, name)

    harness.kube.get = slow  # type: ignore[method-assign]
    for number in range(3 * PASSES_AT_ONCE):
        loops.seen(ObjectKey("llm", f"resource-{number}"))
    await until(lambda: len(loops) == 0, "all loops to end")
    assert most == PASSES_AT_ONCE


class OneTurn:
    """A loop that has to wait for the only turn, and what it does then."""

    def __init__(self, harness: LoopHarness) -> None:
        self.turns = Turns(at_once=1)
        self.loop = harness.loop
        self.slept: list[float] = []
        self.again = asyncio.Event()

    async def until_it_sleeps(self, *, crowded: bool) -> float:
        """For how long, after a pass before which it had to wait or had not."""
        hold = asyncio.Event()
        if not crowded:
            hold.set()

        async def sleep(delay_s: float, _: Pace) -> None:
            self.slept.append(delay_s)
            await asyncio.Event().wait()

        self.loop.sleep = sleep  # type: ignore[method-assign]
        async with asyncio.TaskGroup() as group:
            group.create_task(self._hold(hold))
            await asyncio.sleep(0)
            passing = group.create_task(pass_after_pass(self.loop, self.turns, AT_ONCE))
            await turns()  # it waits in line, or has passed
            hold.set()
            await until(lambda: self.slept, "the pass to end")
            passing.cancel()
        return self.slept.pop()

    async def _hold(self, hold: asyncio.Event) -> None:
        async with self.turns.one(OTHER, urgent=False):
            await hold.wait()


async def test_who_had_to_wait_at_rest_does_not_come_with_all_others_again(
    harness: LoopHarness,
) -> None:
    harness.decide = lambda snapshot: replace(holding(snapshot), wake_after_s=float("inf"))
    line = OneTurn(harness)
    assert await line.until_it_sleeps(crowded=False) == RESYNC_S
    assert await line.until_it_sleeps(crowded=True) == times.spread(RESYNC_S, str(KEY)) < RESYNC_S


async def test_who_looks_often_looks_less_often_while_others_wait(harness: LoopHarness) -> None:
    harness.decide = lambda snapshot: replace(holding(snapshot), wake_after_s=3.0)
    line = OneTurn(harness)
    assert await line.until_it_sleeps(crowded=False) == 3.0
    assert 3.0 < await line.until_it_sleeps(crowded=True) < 4.0


async def test_an_edit_is_urgent_and_what_was_written_of_it_is_not(
    harness: LoopHarness, loops: Loops
) -> None:
    loops.seen(KEY)
    await until(lambda: harness.metrics.asked, "a pass")
    loop = harness.loop
    await loop.tick()
    generation = harness.resource["metadata"]["generation"]
    assert not loop.told(generation, {}, "1")
    assert loop.told(generation + 1, {}, "1")
    harness.edit({"replicas": 3})
    await loop.tick()
    assert not loop.edited


@in_leaping_time
async def test_who_edits_all_the_time_is_answered_once_a_second() -> None:
    harness, looks_s, clock = LoopHarness(), list[float](), asyncio.get_running_loop()
    read = harness.kube.get

    async def counted(kind: Kind, namespace: str, name: str) -> Manifest | None:
        looks_s.append(clock.time())
        return await read(kind, namespace, name)

    harness.kube.get = counted  # type: ignore[method-assign]
    loops = Loops(harness.world)
    loops.seen(KEY)
    await asyncio.sleep(2 * RESYNC_S)
    began_s, before = clock.time(), len(looks_s)
    for index in range(200):
        harness.edit({"speculation.tokens": (1, 3)[index % 2]})
        metadata = harness.resource["metadata"]
        loops.changed(KEY, metadata["generation"], {}, metadata["resourceVersion"])
        await asyncio.sleep(0.1)
    took_s = clock.time() - began_s
    await loops.stop()
    edited_s = looks_s[before:]
    assert edited_s[0] - began_s < SHORTEST_SLEEP_S  # who edits once does not wait
    assert 0.5 * took_s <= len(edited_s) <= took_s / SHORTEST_SLEEP_S + 1


@pytest.mark.parametrize("annotation", names.ASKING_ANNOTATIONS)
async def test_what_a_person_asks_by_an_annotation_is_urgent_until_it_was_looked_at(
    harness: LoopHarness, annotation: str
) -> None:
    loop = harness.loop
    await loop.tick()
    generation = harness.resource["metadata"]["generation"]
    assert not loop.told(generation, {"argocd.argoproj.io/sync-wave": "2"}, "1")
    assert loop.told(generation, {annotation: "now"}, "1")
    document = copy.deepcopy(harness.resource)
    document["metadata"]["annotations"] = {annotation: "now"}
    harness.kube.put(SPECULATIVE_DEPLOYMENT, document)
    await loop.tick()
    assert not loop.edited
    assert not loop.told(generation, {annotation: "now"}, "1")
    assert loop.told(generation, {}, "1")


async def all_turns_taken(harness: LoopHarness, loops: Loops, go_on: asyncio.Event) -> list[str]:
    """Many resources wait in line, and those whose turn it is until they may go on.

    Returns:
        Names of those that went on, as they do.
    """
    at_work, read, looked = 0, harness.kube.get, list[str]()

    async def slow(kind: Kind, namespace: str, name: str) -> Manifest | None:
        nonlocal at_work
        at_work += 1
        await go_on.wait()
        looked.append(name)
        return await read(kind, namespace, name)

    harness.kube.get = slow  # type: ignore[method-assign]
    for number in range(10 * PASSES_AT_ONCE):
        loops.seen(ObjectKey("llm", f"resource-{number}"))
    await until(lambda: at_work == PASSES_AT_ONCE, "all turns to be taken")
    return looked


async def test_an_edit_goes_before_a_thousand_looks(harness: LoopHarness) -> None:
    """Its first write comes before the looks that were due before it."""
    loops, go_on = Loops(harness.world, AT_ONCE), asyncio.Event()
    loops.seen(KEY)
    await until(lambda: harness.metrics.asked, "a pass")
    looked = await all_turns_taken(harness, loops, go_on)
    harness.edit({"replicas": 3})
    metadata = harness.resource["metadata"]
    loops.changed(KEY, metadata["generation"], {}, metadata["resourceVersion"])
    await turns()  # its loop waits in line by now
    go_on.set()
    await until(lambda: "kimi" in looked, "the edited one's turn")
    assert looked.index("kimi") <= PASSES_AT_ONCE
    await loops.stop()


async def test_who_waits_in_line_already_when_it_is_edited_goes_first(
    harness: LoopHarness,
) -> None:
    loops, go_on = Loops(harness.world, AT_ONCE), asyncio.Event()
    loops.seen(KEY)
    await until(lambda: harness.metrics.asked, "a pass")
    await turns()  # it sleeps by now
    looked = await all_turns_taken(harness, loops, go_on)
    loops.wake(KEY)
    await turns()  # it waits behind all others
    harness.edit({"replicas": 3})
    metadata = harness.resource["metadata"]
    loops.changed(KEY, metadata["generation"], {}, metadata["resourceVersion"])
    go_on.set()
    await until(lambda: "kimi" in looked, "the edited one's turn")
    assert looked.index("kimi") <= PASSES_AT_ONCE
    await loops.stop()
