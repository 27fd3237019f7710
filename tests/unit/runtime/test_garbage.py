"""After a long collection the next one looks at what is new, and at everything now and then."""

import gc
import weakref
from collections.abc import Iterator

import pytest

from fathom.runtime.operator_process import EVERYTHING_S, LONGEST_S, short_collections


class Cycle:
    """Only the collector frees it."""

    def __init__(self) -> None:
        self.itself = self


class Time:
    """Each collection takes as long as is said."""

    def __init__(self) -> None:
        self.at_s = 0.0
        self.takes_s = 2 * LONGEST_S

    def now_s(self) -> float:
        self.at_s += self.takes_s
        return self.at_s


@pytest.fixture
def time() -> Iterator[Time]:
    time = Time()
    with short_collections(time.now_s):
        yield time
    assert gc.get_freeze_count() == 0


def test_what_a_long_collection_has_left_is_not_looked_at_again(time: Time) -> None:
    gc.collect()
    assert gc.get_freeze_count() > 10_000  # every module of this process, say
    assert len(gc.get_objects(generation=2)) < 1_000
    time.takes_s = LONGEST_S / 2
    before = gc.get_freeze_count()
    gc.collect()
    assert gc.get_freeze_count() == before


def test_a_short_one_puts_nothing_aside(time: Time) -> None:
    time.takes_s = LONGEST_S / 2
    gc.collect()
    assert gc.get_freeze_count() == 0


@pytest.mark.usefixtures("time")
def test_what_is_new_is_freed_at_the_next_full_collection() -> None:
    gc.collect()
    cycle = Cycle()
    gone = weakref.ref(cycle)
    del cycle
    gc.collect()
    assert gone() is None


def test_what_was_put_aside_is_freed_in_the_end(time: Time) -> None:
    cycle = Cycle()
    gone = weakref.ref(cycle)
    gc.collect()
    del cycle
    gc.collect()
    assert gone() is not None
    time.at_s += EVERYTHING_S
    gc.collect()
    assert gone() is None
