"""When the load is: hours of the day."""

import pytest

from fathom.measurement.counters import Cell, CellCounts, StepKind
from fathom.tuning.estimate.traffic import HALF_LIFE_S, HOURS, Load, hour_of

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
