"""Keeps the garbage collector from holding up the event loop time and again.

A full collection looks at every object. Beside 1,000 resources it took 1.6 s, every 10 to 30 s, in
which nothing else ran: no edit was answered, and no lease renewed.
"""

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

LONGEST_S: Final = 0.1
"""Of a collection that puts nothing aside. What is in use in a cycle at that moment, such as the
pages that are being read, stays until the next collection of everything: under traffic at 1,000
resources some 0.3 MiB, by how memory grew. So it is done no more often than it has to be."""
EVERYTHING_S: Final = 600.0
"""Between two collections of everything, at least."""
_FULL: Final = 2
"""The oldest generation."""


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
