"""A processor for the engine alone; traffic, tuner and everything else of ours on the others.

Engines spin while they wait, and an engine that shares its processor with what feeds it is slowed
down by both: that would be measured as the difference between depths.
"""

import contextlib
import os
from collections.abc import Iterable, Iterator


def split(processors: Iterable[int]) -> tuple[frozenset[int], frozenset[int]]:
    """The engine's processor, and ours. On a machine with a single one both are that one."""
    *ours, engines = sorted(processors)
    return frozenset({engines}), frozenset(ours or {engines})


@contextlib.contextmanager
def running_on(processors: frozenset[int]) -> Iterator[None]:
    """Keep this thread, and whatever it starts meanwhile, on these processors."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, processors)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
