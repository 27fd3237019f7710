"""Keeps the garbage collector from holding up the event loop time and again.

A full collection looks at every object. Beside 1,000 resources it took 1.6 s, every 10 to 30 s, in
which nothing else ran: no edit was answered, and no lease renewed.
"""

import ctypes
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
"""Between two collections of everything, at least. After it, what is free goes back to the system:
beside 1,000 resources, after 52 minutes, that was 48 MiB of 491."""
_FULL: Final = 2
"""The oldest generation."""


def give_back() -> None:
    """Return what is free to the system. Only glibc keeps it, and can be asked for it."""
    if (trim := getattr(ctypes.CDLL(None), "malloc_trim", None)) is not None:
        trim(0)


@contextmanager
def short_collections(
    now_s: Callable[[], float] = time.monotonic, give_back: Callable[[], None] = give_back
) -> Iterator[None]:
    """Put aside what a long collection has left, so that the next one looks at what is new.

    Every ten minutes everything is looked at. What is in no cycle is freed at once, as ever.

    Args:
        now_s: seconds of a clock that never goes back.
        give_back: is called once everything was looked at.
    """
    began_s = everything_at_s = now_s()
    everything = False

    def collecting(phase: str, info: dict[str, Any]) -> None:
        nonlocal began_s, everything_at_s, everything
        if info["generation"] != _FULL:
            return
        if phase == "stop":
            if now_s() - began_s > LONGEST_S:
                gc.freeze()
            if everything:
                everything = False
                give_back()
            return
        began_s = now_s()
        if began_s - everything_at_s >= EVERYTHING_S:
            everything, everything_at_s = True, began_s
            gc.unfreeze()

    gc.callbacks.append(collecting)
    try:
        yield
    finally:
        gc.callbacks.remove(collecting)
        gc.unfreeze()
