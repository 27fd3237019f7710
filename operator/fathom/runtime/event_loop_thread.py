"""An event loop in a thread of its own, and the pulse of the other one."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any, Final, TypeVar

_Result = TypeVar("_Result")
Beside = Callable[[Coroutine[Any, Any, _Result]], "asyncio.Future[_Result]"]
"""Runs a coroutine somewhere else; cancelling what it returns cancels it."""

_END_S: Final = 5.0
"""For what still runs there to take notice that it is cancelled."""
BEAT_S: Final = 1.0
LIFELESS_AFTER_S: Final = 30.0
"""A loop that is full to the brim comes round within a second or two; on a machine ten times too
slow for it, within twenty. One that has not by now hangs. Kubernetes restarts its pod when /healthz
has not answered for about as long, so that whichever comes first ends it. Sooner, and the busiest
operator would lose its lease, start again and be busier still."""


@asynccontextmanager
async def loop_beside(name: str) -> AsyncIterator[Beside[Any]]:
    """Have a second event loop until the end of the block; what runs there then is cancelled.

    Nothing that belongs to one loop, such as a session, may be used in the other. The thread does
    not keep the process from ending.

    Args:
        name: of the thread, for whoever looks at a stack.

    Yields:
        What runs a coroutine there.
    """
    loop, over = asyncio.new_event_loop(), asyncio.Event()

    def run() -> None:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(over.wait())

    def beside(work: Coroutine[Any, Any, _Result]) -> "asyncio.Future[_Result]":
        return asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, loop))

    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    try:
        yield beside
    finally:
        with suppress(RuntimeError):  # it has ended by itself
            loop.call_soon_threadsafe(over.set)
        await asyncio.to_thread(thread.join, _END_S)


class Pulse:
    """Beaten by the loop itself. A beat is one write, so that threads need no lock."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        """Start alive.

        Args:
            now_s: seconds of a clock that never goes back.
        """
        self._now_s = now_s
        self._beaten_s = now_s()

    @property
    def alive(self) -> bool:
        """Whether the loop came round within the last half minute."""
        return self._now_s() - self._beaten_s < LIFELESS_AFTER_S

    def beat(self) -> None:
        """The loop is here."""
        self._beaten_s = self._now_s()

    async def keep(self) -> None:
        """Beat every second, in the loop that is meant, until cancelled."""
        while True:
            self.beat()
            await asyncio.sleep(BEAT_S)
