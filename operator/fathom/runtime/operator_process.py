"""The process of an operator: its limits, garbage collection, a second event loop, and a pulse.

A full collection looks at every object. Beside 1,000 resources it took 1.6 s, every 10 to 30 s, in
which nothing else ran: no edit was answered, and no lease renewed.
"""

import asyncio
import gc
import json.scanner
import resource
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
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


_DEEPEST_JSON: Final = 10_000
"""Limit of Go's decoder (encoding/json, `maxNestingDepth`), so of every API server."""
_OTHER_FRAMES: Final = 2_000
"""Frames of whoever asks the decoder, and of an envelope around the object."""
_DECODER_HAS_ITS_OWN_LIMIT: Final = sys.version_info[:2] in {(3, 12), (3, 13)}
"""One that is compiled in (1,497 levels in Python 3.12.1, 9,998 in 3.13.0), and not Python's."""
_FRAMES_PER_LEVEL: Final = 2
"""Frames of the decoder that is written in Python."""
LONGEST_S: Final = 0.1
"""Duration of a collection that puts nothing aside. What is in use in a cycle at that moment, such
as the pages that are being read, stays until the next collection of everything: under traffic at
1,000 resources some 0.3 MiB, by how memory grew. So it is done no more often than it has to be."""
EVERYTHING_S: Final = 600.0
"""Between two collections of everything, at least."""
_FULL: Final = 2
"""The oldest generation."""


def make_room_for_deep_json() -> None:
    """Let JSON nest as deep as an API server takes it.

    Python's decoder gives up at a thousand values in each other, and Kopf reads all resources from
    one stream: one pod template that is deeper would end every loop, and the operator again at each
    start. With room it is read, and refused as the invalid spec of one resource
    (`fathom.resource`). The decoder needs less than 2 MB of stack for it, of 8 that there are.
    """
    frames = _DEEPEST_JSON
    if _DECODER_HAS_ITS_OWN_LIMIT:
        _decode_in_python_what_is_deeper()
        frames *= _FRAMES_PER_LEVEL
    sys.setrecursionlimit(max(sys.getrecursionlimit(), frames + _OTHER_FRAMES))


def _decode_in_python_what_is_deeper() -> None:
    """Patch `json.loads`, which Kopf and the Kubernetes client call. Its frames take no C stack."""
    decoder = json._default_decoder  # type: ignore[attr-defined] # noqa: SLF001 - nobody else's
    quick = decoder.scan_once
    deep = json.scanner.py_make_scanner(decoder)  # type: ignore[attr-defined] # it is not typed

    def scan_once(text: str, start: int) -> tuple[Any, int]:
        try:
            found: tuple[Any, int] = quick(text, start)
        except RecursionError:
            found = deep(text, start)
        return found

    decoder.scan_once = scan_once


def make_room_for_connections() -> None:
    """Let as many files be open as may be: each connection is one.

    Container runtimes start with 1024, for programs that know no more, and allow far more. Each
    namespace that is served by name takes eleven, and up to 768 go to pods.
    """
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    # Some systems refuse what they say themselves; then it stays as it is.
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


@contextmanager
def short_collections(now_s: Callable[[], float] = time.monotonic) -> Iterator[None]:
    """Put aside what a long collection has left, so that the next one looks at what is new.

    Every ten minutes everything is looked at. What is in no cycle is freed at once, as ever.

    Args:
        now_s: seconds of a clock that never goes back.
    """
    began_s = everything_at_s = now_s()

    def collecting(phase: str, info: dict[str, Any]) -> None:
        nonlocal began_s, everything_at_s
        if info["generation"] != _FULL:
            return
        if phase == "stop":
            if now_s() - began_s > LONGEST_S:
                gc.freeze()
            return
        began_s = now_s()
        if began_s - everything_at_s >= EVERYTHING_S:
            everything_at_s = began_s
            gc.unfreeze()

    gc.callbacks.append(collecting)
    try:
        yield
    finally:
        gc.callbacks.remove(collecting)
        gc.unfreeze()
