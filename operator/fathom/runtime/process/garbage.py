"""Keeps the garbage collector from holding up the event loop.

A full collection looks at every object. Beside 1,000 resources it took 1.6 s, every half minute, in
which nothing else ran: no edit was answered, and no lease renewed.
"""

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

EVERYTHING_S: Final = 3600.0
"""Between two collections of everything, for what has become garbage in a cycle since it was put
aside; anything else is freed at once, as ever."""
_FULL: Final = 2
"""The oldest generation."""


@contextmanager
def short_collections(now_s: Callable[[], float] = time.monotonic) -> Iterator[None]:
    """Put aside what a full collection has left, so that the next one looks at what is new.

    Args:
        now_s: seconds of a clock that never goes back.
    """
    everything_at_s = now_s()

    def collecting(phase: str, info: dict[str, Any]) -> None:
        nonlocal everything_at_s
        if info["generation"] != _FULL:
            return
        if phase == "stop":
            gc.freeze()
        elif now_s() - everything_at_s >= EVERYTHING_S:
            everything_at_s = now_s()
            gc.unfreeze()

    gc.callbacks.append(collecting)
    try:
        yield
    finally:
        gc.callbacks.remove(collecting)
        gc.unfreeze()
