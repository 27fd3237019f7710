"""When the load is: hours of the day; and what is remembered of rollouts."""

import pytest

from fathom.core.measurement import Cell, CellCounts, StepKind
from fathom.tuning.load import HALF_LIFE_S, HOURS, Load, hour_of
from fathom.tuning.rolls import Canary, Rolls

HOUR_S = 3600.0
WEEK_S = 7 * 24 * HOUR_S
MIDNIGHT_S = 19_675 * 24 * HOUR_S


def busy(seconds: float, bucket: int = 4) -> dict[Cell, CellCounts]:
    return {Cell(bucket, 3, StepKind.DECODE): CellCounts(100, seconds, 200, 400)}


def a_day(load: Load, day: int = 0, first_busy: int = 7) -> Load:
    """Busy from 7 to 20 o'clock, little in the night."""
    for hour in range(HOURS):
        at_s = MIDNIGHT_S + day * 24 * HOUR_S + hour * HOUR_S
        load = load.updated(busy(3000.0 if first_busy <= hour < 20 else 300.0), at_s, HOUR_S)
    return load


def test_hours_are_utc() -> None:
    assert hour_of(MIDNIGHT_S) == 0
    assert hour_of(MIDNIGHT_S + 23.9 * HOUR_S) == 23


def test_the_night_is_a_trough_once_a_whole_day_was_seen() -> None:
    load = a_day(Load())
    assert load.is_trough(MIDNIGHT_S + 3 * HOUR_S)
    assert load.is_trough(MIDNIGHT_S + 22 * HOUR_S)


def test_hours_without_requests_are_the_trough() -> None:
    """Nothing is counted in them, so they are never recorded."""
    load = Load()
    for hour in range(48):
        if 8 <= hour % 24 < 18:
            load = load.updated(busy(1800), MIDNIGHT_S + (hour + 0.5) * HOUR_S, HOUR_S)
    troughs = [hour for hour in range(HOURS) if load.is_trough(MIDNIGHT_S + hour * HOUR_S)]
    assert troughs == [*range(8), *range(18, 24)]


def test_half_of_the_day_busy_is_no_trough() -> None:
    load = a_day(Load(), first_busy=8)
    troughs = [hour for hour in range(HOURS) if load.is_trough(MIDNIGHT_S + hour * HOUR_S)]
    assert troughs == [*range(8), *range(20, 24)]


def test_before_a_whole_day_every_hour_will_do() -> None:
    load = Load().updated(busy(3000), MIDNIGHT_S, HOUR_S)
    assert load.is_trough(MIDNIGHT_S)
    assert load.is_trough(MIDNIGHT_S + 5 * HOUR_S)


def test_shares_are_of_the_busy_time_over_all_hours() -> None:
    load = Load().updated(busy(30, bucket=4), MIDNIGHT_S, 60)
    load = load.updated(busy(90, bucket=8), MIDNIGHT_S + 6 * HOUR_S, 60)
    assert load.shares() == {4: pytest.approx(0.25), 8: pytest.approx(0.75)}
    assert Load().shares() == {}


def test_without_traffic_nothing_is_noted() -> None:
    load = a_day(Load())
    assert load.updated({}, MIDNIGHT_S + WEEK_S, 60) is load


def test_the_days_fade_and_since_stays() -> None:
    load = Load().updated(busy(100), MIDNIGHT_S, 100)
    load = load.updated(busy(0.0), MIDNIGHT_S + HALF_LIFE_S, 50)
    assert load.hours[0].total == pytest.approx(0.5)
    assert load.since_s == MIDNIGHT_S


def test_an_hour_that_was_seen_on_more_days_has_no_more_load() -> None:
    load = a_day(Load())
    for hour in range(6):  # The second night begins, like the first.
        load = load.updated(busy(300.0), MIDNIGHT_S + (24 + hour) * HOUR_S, HOUR_S)
    assert load.is_trough(MIDNIGHT_S + 27 * HOUR_S)
    assert load.hours[0].total == pytest.approx(load.hours[22].total)


def test_hours_that_hardly_differ_are_all_as_good() -> None:
    load = Load()
    for hour in range(HOURS):
        load = load.updated(busy(1000.0 + hour), MIDNIGHT_S + hour * HOUR_S, HOUR_S)
    assert all(load.is_trough(MIDNIGHT_S + hour * HOUR_S) for hour in range(HOURS))


def test_it_stays_bounded() -> None:
    load = Load()
    for day in range(10):
        load = a_day(load, day)
    assert len(load.hours) == HOURS


# Rollouts


def may_roll(rolls: Rolls, now_s: float) -> bool:
    return rolls.may_roll(now_s, most=2, within_s=WEEK_S, cooldown_s=3 * HOUR_S)


def test_at_most_so_many_promotions_a_week() -> None:
    rolls = Rolls()
    assert may_roll(rolls, 0.0)
    rolls = rolls.promoted({4: 3}, {4: 5}, 0.0, WEEK_S)
    assert not may_roll(rolls, HOUR_S)
    assert may_roll(rolls, 4 * HOUR_S)
    rolls = rolls.promoted({4: 5}, {4: 6}, 4 * HOUR_S, WEEK_S)
    assert not may_roll(rolls, WEEK_S - 1)
    assert may_roll(rolls, WEEK_S + 1)


def test_one_canary_at_a_time_and_a_rest_after_one_that_failed() -> None:
    assert not may_roll(Rolls(canary=Canary("pod-1", ((4, 5),), 0.0)), HOUR_S)
    rested = Rolls(rest_until_s=24 * HOUR_S)
    assert not may_roll(rested, 23 * HOUR_S)
    assert may_roll(rested, 24 * HOUR_S)


def test_promotions_beyond_a_week_are_forgotten() -> None:
    rolls = Rolls()
    for week in range(10):
        rolls = rolls.promoted({4: 3}, {4: 5}, week * WEEK_S, WEEK_S)
    assert len(rolls.promoted_at_s) == 1
