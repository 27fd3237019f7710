"""How much work something is, on whatever machine."""

import sys
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Work:
    """What a call took."""

    calls: int
    """Calls of functions, those in C too."""
    bytes_at_most: int
    """That it held at a time, of what Python had to allocate."""


def work_of(call: Callable[[], object]) -> Work:
    """Count what a call does."""
    calls = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event in {"call", "c_call"}

    before = sys.getprofile()
    tracemalloc.start()
    sys.setprofile(count)
    try:
        call()
    finally:
        sys.setprofile(before)
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return Work(calls, most)
