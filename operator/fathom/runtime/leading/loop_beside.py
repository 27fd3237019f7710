"""An event loop in a thread, for what must not wait until this one has time."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any, Final, TypeVar

_Result = TypeVar("_Result")
Beside = Callable[[Coroutine[Any, Any, _Result]], "asyncio.Future[_Result]"]
"""Runs a coroutine somewhere else; cancelling what it returns cancels it."""

_END_S: Final = 5.0
"""For what still runs there to take notice that it is cancelled."""


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
