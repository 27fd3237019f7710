"""A second event loop does its work whatever the first one does."""

import asyncio
import threading
import time

import pytest

from fathom.runtime.leading.loop_beside import loop_beside


async def test_it_goes_on_while_this_loop_is_full() -> None:
    async with loop_beside("other") as beside:
        arrived = threading.Event()

        async def work() -> str:
            await asyncio.sleep(0)
            arrived.set()
            return threading.current_thread().name

        working = beside(work())
        assert arrived.wait(10)  # nothing of this loop runs meanwhile
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
        assert all(each.wait(10) for each in events)
        first.cancel()
        deadline_s = time.monotonic() + 10
        while not ended and time.monotonic() < deadline_s:
            await asyncio.sleep(0.001)
        assert ended == ["a"]
    assert ended == ["a", "b"]
    assert "other" not in {each.name for each in threading.enumerate()}
