"""Who is urgent has most turns, nobody waits for ever, and no turn is lost."""

import asyncio
import contextlib

import pytest

from fathom.cluster.kinds import ObjectKey
from fathom.runtime.loop_registry import BESIDE_URGENT, PASSES_AT_ONCE, Turns
from support.leaping_time import in_leaping_time

HOLDER = ObjectKey("llm", "holder")


class Line:
    """One turn, which somebody has, and those who wait for it."""

    def __init__(self, passed_on_after_s: float = 3600.0) -> None:
        self.turns = Turns(at_once=1, passed_on_after_s=passed_on_after_s)
        self.over = asyncio.Event()
        self.passed: list[str] = []
        self.waited_s: list[float] = []
        self.tasks = [asyncio.create_task(self.hold())]

    async def hold(self) -> None:
        async with self.turns.one(HOLDER, urgent=False):
            await self.over.wait()

    async def _pass(self, name: str) -> None:
        async with self.turns.one(ObjectKey("llm", name), urgent=False) as waited_s:
            self.passed.append(name)
            self.waited_s.append(waited_s)

    async def comes(self, name: str) -> asyncio.Task[None]:
        await asyncio.sleep(0)
        task = asyncio.create_task(self._pass(name))
        self.tasks.append(task)
        await asyncio.sleep(0)
        return task

    async def ends(self) -> list[str]:
        """Who had a turn, in this order, once the first is over."""
        self.over.set()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        return self.passed


async def test_first_come_first_served() -> None:
    line = Line()
    for name in "abc":
        await line.comes(name)
    assert await line.ends() == ["a", "b", "c"]
    assert all(each > 0 for each in line.waited_s)


async def test_who_finds_a_turn_does_not_wait() -> None:
    line = Line()
    assert await line.ends() == []
    await line.comes("a")
    assert line.waited_s == [0.0]


class Crowd:
    """Passes that go on until they are told to end."""

    def __init__(self) -> None:
        self.turns = Turns(passed_on_after_s=3600.0)
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self.over: dict[str, asyncio.Event] = {}
        self.running: list[str] = []

    async def comes(self, *names: str, urgent: bool = False) -> None:
        for name in names:
            self.over[name] = asyncio.Event()
            self.tasks[name] = asyncio.create_task(self._pass(name, urgent=urgent))
        await asyncio.sleep(0)

    async def ends(self, *names: str) -> None:
        for name in names:
            self.over[name].set()
            await self.tasks[name]

    async def _pass(self, name: str, *, urgent: bool) -> None:
        async with self.turns.one(ObjectKey("llm", name), urgent=urgent):
            self.running.append(name)
            await self.over[name].wait()
            self.running.remove(name)


def others(number: int, first: int = 0) -> list[str]:
    return [f"other-{each}" for each in range(first, first + number)]


async def test_the_urgent_go_first_also_if_they_become_so_while_they_wait() -> None:
    crowd, full = Crowd(), others(PASSES_AT_ONCE)
    await crowd.comes(*full)
    await crowd.comes("waits", "waits too")
    await crowd.comes("urgent", urgent=True)
    crowd.turns.hurry(ObjectKey("llm", "waits too"))
    crowd.turns.hurry(ObjectKey("llm", "who does not wait"))
    assert crowd.running == full
    await crowd.ends(full[0])
    assert crowd.running == [*full[1:], "urgent"]
    await crowd.ends(full[1])
    assert crowd.running == [*full[2:], "urgent", "waits too"]


async def test_beside_the_urgent_few_others_begin_and_all_once_it_has_ended() -> None:
    crowd = Crowd()
    await crowd.comes("urgent", urgent=True)
    await crowd.comes(*others(PASSES_AT_ONCE))
    assert crowd.running == ["urgent", *others(BESIDE_URGENT)]
    await crowd.ends("other-0")
    assert crowd.running == ["urgent", *others(BESIDE_URGENT, first=1)]
    crowd.turns.hurry(ObjectKey("llm", "other-9"))
    await asyncio.sleep(0)
    assert crowd.running[-1] == "other-9"
    await crowd.ends("urgent", "other-9")
    assert len(crowd.running) == PASSES_AT_ONCE - 2


async def test_the_urgent_do_not_stop_the_rest() -> None:
    crowd = Crowd()
    urgent = [f"urgent-{each}" for each in range(2 * PASSES_AT_ONCE)]
    await crowd.comes(*urgent, urgent=True)
    await crowd.comes(*others(BESIDE_URGENT + 1))
    assert crowd.running == urgent[:PASSES_AT_ONCE]
    await crowd.ends(*urgent[:PASSES_AT_ONCE])
    assert {*others(BESIDE_URGENT)} < {*crowd.running}
    assert len(crowd.running) == PASSES_AT_ONCE


async def test_the_last_urgent_one_that_leaves_the_line_leaves_the_turns_to_the_rest() -> None:
    crowd, full = Crowd(), others(PASSES_AT_ONCE)
    await crowd.comes(*full)
    await crowd.comes("urgent", urgent=True)
    await crowd.comes("waits")
    crowd.tasks["urgent"].cancel()
    await asyncio.gather(crowd.tasks["urgent"], return_exceptions=True)
    await crowd.ends(full[0])
    assert crowd.running == [*full[1:], "waits"]


@in_leaping_time
async def test_a_pass_that_waits_for_others_passes_its_turn_on_and_no_more_than_once() -> None:
    line = Line(passed_on_after_s=0.2)
    await line.comes("a")
    assert line.passed == []
    await asyncio.sleep(0.3)
    assert line.passed == ["a"]
    assert not line.over.is_set()
    await line.ends()

    line.over = asyncio.Event()
    line.tasks = [asyncio.create_task(line.hold())]
    await line.comes("b")
    assert line.passed == ["a"]  # there is one turn, and not two
    assert await line.ends() == ["a", "b"]


@pytest.mark.parametrize("moment", range(6))
async def test_who_is_cancelled_at_whatever_moment_leaves_the_turn_to_the_next(
    moment: int,
) -> None:
    line = Line()
    cancelled = await line.comes("a")
    last = await line.comes("b")
    line.over.set()
    for _ in range(moment):
        await asyncio.sleep(0)
    cancelled.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await cancelled
    await last
    await (await line.comes("c"))
    assert line.passed[-2:] == ["b", "c"]
