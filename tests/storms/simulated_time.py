"""An event loop whose time is simulated, and processes in it that can be killed and paused.

Nothing waits: when no callback is due, time leaps to the next timer. Callbacks run in the order in
which they became due, so that the same history always ends in the same bytes.
"""

import asyncio
import contextvars
import selectors
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

START_S = 1_800_000_000.25
"""Unix seconds at which every history begins."""

_process: contextvars.ContextVar["Process | None"] = contextvars.ContextVar("process", default=None)


class Process:
    """A program of its own: what is started in it can be stopped from outside, at any await."""

    def __init__(self, loop: "SimulatedLoop", name: str) -> None:
        self.name = name
        self.alive = True
        self.paused = False
        self.wall_offset_s = 0.0
        """How far its wall clock is ahead of the true one."""
        self._loop = loop
        self._tasks: list[asyncio.Task[Any]] = []
        self._backlog: list[tuple[_Due, contextvars.Context]] = []

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run a coroutine, and all that it starts, as part of this process."""
        context = contextvars.copy_context()
        context.run(_process.set, self)
        task = self._loop.create_task(work, name=self.name, context=context)
        self._tasks.append(task)
        return task

    def kill(self) -> None:
        """End it where it stands. What it still does while it unwinds reaches nobody."""
        self.alive = False
        self.resume()
        for task in self._tasks:
            task.cancel()

    def pause(self) -> None:
        """Freeze it, as a suspended machine or a stopped process is."""
        self.paused = True

    def resume(self) -> None:
        """Let it go on, with all that it missed, in order."""
        self.paused = False
        backlog, self._backlog = self._backlog, []
        for due, context in backlog:
            self._loop.call_soon(due.run, context=context)

    def wall_s(self) -> float:
        """What its wall clock shows, in Unix seconds."""
        return START_S + self._loop.time() + self.wall_offset_s

    def run(self, due: "_Due") -> None:
        """Run a callback of this process, or keep it until the process goes on."""
        if self.paused:
            self._backlog.append((due, contextvars.copy_context()))
        else:
            due.callback(*due.arguments)


class _Due:
    """A callback of a process. What is cancelled while it waits for the process is not run."""

    __slots__ = ("arguments", "callback", "handle")

    def __init__(self, callback: Callable[..., object], arguments: tuple[Any, ...]) -> None:
        self.callback = callback
        self.arguments = arguments
        self.handle: asyncio.Handle | None = None

    def run(self) -> None:
        if self.handle is None or not self.handle.cancelled():
            self.callback(*self.arguments)


def current() -> Process | None:
    """The process that is running now; None: the world around it."""
    return _process.get()


class _Leap(selectors.DefaultSelector):
    """A selector that never waits: the time that it would have waited has passed."""

    def __init__(self) -> None:
        super().__init__()
        self.passed_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise RuntimeError("The simulation has nothing left to do and nobody to end it.")
        self.passed_s += max(0.0, timeout)
        return []


class SimulatedLoop(asyncio.SelectorEventLoop):
    """asyncio's own loop on simulated time."""

    def __init__(self) -> None:
        self._leap = _Leap()
        super().__init__(self._leap)

    def time(self) -> float:
        """Simulated seconds since the history began."""
        return self._leap.passed_s

    def call_soon(
        self,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        """As asyncio's, and held back while the process that it belongs to is paused."""
        # One that holds nothing is false, and is the world's own.
        context = contextvars.copy_context() if context is None else context
        owner = context.get(_process)
        if owner is None:
            return super().call_soon(callback, *args, context=context)
        due = _Due(callback, args)
        due.handle = super().call_soon(owner.run, due, context=context)
        return due.handle

    def call_at(
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """As `call_soon`."""
        context = contextvars.copy_context() if context is None else context
        owner = context.get(_process)
        if owner is None:
            return super().call_at(when, callback, *args, context=context)
        due = _Due(callback, args)
        due.handle = handle = super().call_at(when, owner.run, due, context=context)
        return handle

    async def create_unix_connection(  # type: ignore[override]
        self, protocol_factory: Callable[[], asyncio.Protocol], _path: Any = None, **_: Any
    ) -> tuple[asyncio.Transport, asyncio.Protocol]:
        """Connect to the simulated network: there is no other."""
        return await self.network.connect(protocol_factory)

    network: Any = None


def run(work: Callable[[SimulatedLoop], Coroutine[Any, Any, None]]) -> None:
    """Run to the end of a coroutine, and close what is left.

    Raises:
        RuntimeError: something ended in an error that nobody waited for.
    """
    loop = SimulatedLoop()
    unheard: list[Mapping[str, Any]] = []
    # What a handler raises itself, asyncio only logs.
    loop.set_exception_handler(lambda _, context: unheard.append(context))
    try:
        loop.run_until_complete(work(loop))
        if left := asyncio.all_tasks(loop):
            for task in left:
                task.cancel()
            loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        loop.close()
    for context in unheard:
        # Tasks of a process that was killed are destroyed as they stand, without an error.
        if (error := context.get("exception")) is not None:
            raise RuntimeError(f"{context['message']}: {error!r}") from error
