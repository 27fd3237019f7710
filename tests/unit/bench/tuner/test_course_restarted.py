"""A course with engines that a policy restarted: their acceptance is fresh again."""

import numpy as np
import pytest

from fathom_bench.tuner.course.course import WorldCourse
from unit.bench.tuner.worlds import days, world

HOUR_S, TICK_S = 3600.0, 60.0
DECAY = {"kind": "decay", "at_minutes": 0, "per_hour": 0.1, "floor": 0.5}


def worn(*events: dict[str, object]) -> WorldCourse:
    """A day in which acceptance falls by a tenth (log) an hour, in ticks of a minute."""
    return days(world(events=(DECAY, *events)), 1)


def fresh_for(hours: float) -> float:
    return float(np.exp(-0.1 * hours))


def test_an_engine_that_restarts_is_fresh_and_wears_from_then_on() -> None:
    course = worn().restarted([(1, 2 * HOUR_S)])
    assert course.wear[119, 1] == pytest.approx(fresh_for(119 / 60))
    assert course.wear[120, 1] == pytest.approx(1.0)
    assert course.wear[180, 1] == pytest.approx(fresh_for(1))
    assert course.wear[-1, 1] == pytest.approx(0.5)


def test_the_other_replicas_are_as_they_were() -> None:
    before = worn()
    after = before.restarted([(1, 2 * HOUR_S)])
    others = [0, 2, 3]
    assert (after.wear[:, others] == before.wear[:, others]).all()


def test_tokens_follow() -> None:
    """Half of what a fresh engine drafts is accepted, at the first position."""
    before = worn()
    assert before.length[120, 1, 1] == pytest.approx(1 + 0.5 * fresh_for(2))
    after = before.restarted([(1, 2 * HOUR_S)])
    assert after.length[120, 1, 1] == pytest.approx(1.5)
    assert after.rate[120, 1, 3] > before.rate[120, 1, 3]
    assert after.rate[120, 0, 3] == before.rate[120, 0, 3]


@pytest.mark.parametrize("reverse", [False, True])
def test_the_last_restart_counts_in_whatever_order_they_are_told(reverse: bool) -> None:  # noqa: FBT001
    restarts = [(1, 2 * HOUR_S), (1, 5 * HOUR_S), (2, 3 * HOUR_S)]
    course = worn().restarted(restarts[::-1] if reverse else restarts)
    assert course.wear[299, 1] == pytest.approx(fresh_for(179 / 60))
    assert course.wear[300, 1] == pytest.approx(1.0)
    assert course.wear[300, 2] == pytest.approx(fresh_for(2))


def test_within_a_tick_nothing_changes() -> None:
    """A restart shows from the next tick on."""
    course = worn().restarted([(1, 2 * HOUR_S + 1)])
    assert course.wear[120, 1] == pytest.approx(fresh_for(2))
    assert course.wear[121, 1] == pytest.approx(fresh_for((TICK_S - 1) / HOUR_S))


def test_a_restart_at_the_very_end_is_not_seen() -> None:
    before = worn()
    assert (before.restarted([(1, 24 * HOUR_S)]).wear == before.wear).all()


def test_the_course_itself_stays_as_it_was() -> None:
    before = worn()
    wear, rate = before.wear.copy(), before.rate.copy()
    before.restarted([(1, 2 * HOUR_S)])
    assert (before.wear == wear).all()
    assert (before.rate == rate).all()


def test_wear_that_begins_later_does_so_in_a_restarted_engine_too() -> None:
    later = {**DECAY, "at_minutes": 240}
    course = days(world(events=(later,)), 1).restarted([(1, 2 * HOUR_S)])
    assert course.wear[[120, 240], 1].tolist() == [1.0, 1.0]
    assert course.wear[300, 1] == pytest.approx(fresh_for(1))


def test_where_nothing_wears_a_restart_changes_nothing() -> None:
    course = days(world(), 1)
    assert course.restarted([(1, 2 * HOUR_S)]) is course


def test_an_engine_that_had_restarted_before_by_itself_is_fresh_again() -> None:
    own = {"kind": "pod_restart", "at_minutes": 60, "pod": 1}
    course = worn(own).restarted([(1, 3 * HOUR_S)])
    assert course.wear[179, 1] == pytest.approx(fresh_for(119 / 60))
    assert course.wear[180, 1] == pytest.approx(1.0)


def test_a_restart_of_its_own_later_on_counts_as_well() -> None:
    own = {"kind": "pod_restart", "at_minutes": 300, "pod": 1}
    course = worn(own).restarted([(1, 2 * HOUR_S)])
    assert course.wear[299, 1] == pytest.approx(fresh_for(179 / 60))
    assert course.wear[300, 1] == pytest.approx(1.0)
