"""How slow this machine is: seconds of processor time are those of a machine."""

import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Final

_OBJECTS: Final = 100_000
_ROUNDS: Final = 5
_REFERENCE_S: Final = 130e-9
"""For one object, where the figures in Makefile and documentation come from, at most."""
_EVERY_S: Final = 10.0
"""Between two looks of `slowness_seen`: they take about 1 % of a core."""


def slowness() -> float:
    """How many times as long Python takes here as on the machine of our own figures, at most.

    Objects are visited in a random order: a program of many objects waits for memory, and machines
    that are shared differ in that by a factor of seven, where a loop over few takes as long on all.
    By processor time, and the quickest of some rounds, so that other work hardly counts. Within a
    second. One figure is not exact: it tells machines apart, not releases.
    """
    order = _order()
    return min(_round_s(order) for _ in range(_ROUNDS)) / _OBJECTS / _REFERENCE_S


@contextmanager
def slowness_seen() -> Iterator[list[float]]:
    """Look at the slowness again and again, from a thread; gives what was seen so far.

    A neighbour of a virtual machine comes and goes: over a minute it changed between 0.5 and 4.3.
    What took minutes is judged by the mean over these minutes. One look comes before anything else.
    """
    seen, over = [slowness()], threading.Event()

    def look() -> None:
        while not over.wait(_EVERY_S):
            seen.append(slowness())

    looking = threading.Thread(target=look, name="slowness", daemon=True)
    looking.start()
    try:
        yield seen
    finally:
        over.set()
        looking.join()


@cache
def _order() -> list[int]:
    """Once for all looks: to draw it takes longer than a round."""
    order = list(range(_OBJECTS))
    random.Random(1).shuffle(order)  # noqa: S311 - no secret
    return order


def _round_s(order: list[int]) -> float:
    began_s = time.process_time()
    sum(order[each] for each in order)
    return time.process_time() - began_s
