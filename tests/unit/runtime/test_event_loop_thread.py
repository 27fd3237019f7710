"""A second event loop does its work whatever the first one does."""

import asyncio
import threading

import pytest

from fathom.runtime.operator_process import loop_beside
from support.waiting import GUARD_S, until


async def test_it_goes_on_while_this_loop_is_full() -> None:
    async with loop_beside("other") as beside:
        arrived = threading.Event()

        async def work() -> str:
            await asyncio.sleep(0)
            arrived.set()
            return threading.current_thread().name

        working = beside(work())
        assert arrived.wait(GUARD_S)  # nothing of this loop runs meanwhile
        assert await working == "other"


async def test_what_fails_there_fails_here() -> None:
    async def fail() -> None:
        raise OSError("no route")

    async with loop_beside("other") as beside:
        with pytest.raises(OSError, match="no route"):
            await beside(fail())


async def test_what_is_cancelled_here_ends_there_and_so_does_all_at_the_end() -> None:
    ended: list[str] = []

    async def work(name: str, begun: threading.Event) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(name)

    async with loop_beside("other") as beside:
        events = threading.Event(), threading.Event()
        first, _ = (beside(work(name, begun)) for name, begun in zip("ab", events, strict=True))
        assert all(each.wait(GUARD_S) for each in events)
        first.cancel()
        await until(lambda: ended, "what was cancelled to end")
        assert ended == ["a"]
    assert ended == ["a", "b"]
    assert "other" not in {each.name for each in threading.enumerate()}
