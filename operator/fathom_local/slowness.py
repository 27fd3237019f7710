"""How slow this machine is: seconds of processor time are those of a machine."""

import random
import time
from typing import Final

_OBJECTS: Final = 100_000
_ROUNDS: Final = 5
_REFERENCE_S: Final = 130e-9
"""For one object, where the figures in Makefile and documentation come from, at most."""


def slowness() -> float:
    """How many times as long Python takes here as on the machine of our own figures, at most.

    Objects are visited in a random order: a program of many objects waits for memory, and machines
    that are shared differ in that by a factor of seven, where a loop over few takes as long on all.
    By processor time, and the quickest of some rounds, so that other work hardly counts. Within a
    second. One figure is not exact: it tells machines apart, not releases.
    """
    order = list(range(_OBJECTS))
    random.Random(1).shuffle(order)  # noqa: S311 - no secret
    return min(_round_s(order) for _ in range(_ROUNDS)) / _OBJECTS / _REFERENCE_S


def _round_s(order: list[int]) -> float:
    began_s = time.process_time()
    sum(order[each] for each in order)
    return time.process_time() - began_s
