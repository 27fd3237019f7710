"""A full collection looks at what is new, and once an hour at everything."""

import gc
import weakref

from fathom.runtime.process.garbage import EVERYTHING_S, short_collections


class Cycle:
    """Only the collector frees it."""

    def __init__(self) -> None:
        self.itself = self


class Time:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_what_a_full_collection_has_left_is_not_looked_at_again() -> None:
    with short_collections():
        gc.collect()
        assert gc.get_freeze_count() > 10_000  # every module of this process, say
        assert len(gc.get_objects(generation=2)) < 1_000
    assert gc.get_freeze_count() == 0


def test_what_is_new_is_freed_at_the_next_full_collection() -> None:
    with short_collections():
        gc.collect()
        cycle = Cycle()
        gone = weakref.ref(cycle)
        del cycle
        gc.collect()
        assert gone() is None


def test_what_was_put_aside_is_freed_within_an_hour() -> None:
    time = Time()
    with short_collections(time):
        cycle = Cycle()
        gone = weakref.ref(cycle)
        gc.collect()
        del cycle
        time.now_s = EVERYTHING_S - 1
        gc.collect()
        assert gone() is not None
        time.now_s = EVERYTHING_S
        gc.collect()
        assert gone() is None
