"""Who is urgent goes first, nobody waits for ever, and no turn is lost."""

import asyncio
import contextlib

import pytest

from fathom.core.cluster.kinds import ObjectKey
from fathom.runtime.turns import URGENT_IN_A_ROW, Turns

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

    async def _pass(self, name: str, *, urgent: bool) -> None:
        async with self.turns.one(ObjectKey("llm", name), urgent=urgent) as waited_s:
            self.passed.append(name)
            self.waited_s.append(waited_s)

    async def comes(self, name: str, *, urgent: bool = False) -> asyncio.Task[None]:
        await asyncio.sleep(0)
        task = asyncio.create_task(self._pass(name, urgent=urgent))
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


async def test_the_urgent_go_first_also_if_they_become_so_while_they_wait() -> None:
    line = Line()
    for name in "abc":
        await line.comes(name)
    await line.comes("d", urgent=True)
    line.turns.hurry(ObjectKey("llm", "c"))
    line.turns.hurry(ObjectKey("llm", "who does not wait"))
    assert await line.ends() == ["d", "c", "a", "b"]


async def test_the_urgent_do_not_stop_the_rest() -> None:
    line = Line()
    await line.comes("other")
    for number in range(2 * URGENT_IN_A_ROW):
        await line.comes(str(number), urgent=True)
    passed = await line.ends()
    assert passed.index("other") == URGENT_IN_A_ROW
    assert len(passed) == 1 + 2 * URGENT_IN_A_ROW


async def test_a_pass_that_waits_for_others_passes_its_turn_on_and_no_more_than_once() -> None:
    line = Line(passed_on_after_s=0.2)
    await line.comes("a")
    async with asyncio.timeout(10):
        while line.passed != ["a"]:
            await asyncio.sleep(0)
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
    async with asyncio.timeout(10):
        await last
    third = await line.comes("c")
    async with asyncio.timeout(10):
        await third
    assert line.passed[-2:] == ["b", "c"]
