"""Acceptance is held against a reference as long as a draft stays: a fall shows, no rhythm."""

from collections.abc import Callable
from dataclasses import replace
from math import cos, pi
from typing import Any

import pytest

from fathom.api.conditions import AlarmKind, Reason
from fathom.engine.report import ServedPair
from fathom.tuning.estimate.acceptance_length import Trials
from fathom.tuning.estimate.reference import (
    DAY_DRAFTS,
    MOST_POSITIONS,
    Reference,
    first_position,
    survival,
)
from fathom.tuning.learned_state import TuningState
from fathom.tuning.learning import learn
from unit.tuning.plant import SETTINGS, START_S, Fleet

HOUR_S = 3600.0
DAY_S = 24 * HOUR_S
ONE_DEPTH = replace(SETTINGS, probing=False, min_tokens=3, max_tokens=3)
PAIR = ServedPair(target="target", draft="draft", engine="engine", commits=True)
FITS = 0.81
FALLEN = 0.41


def accepting(first: float) -> tuple[float, ...]:
    return (first, 0.8, 0.75) + (0.7,) * 13


def days_long(window_s: float = HOUR_S / 2, pair: ServedPair | None = PAIR) -> Fleet:
    """A fleet of one pod at one depth, with windows as long as the test can have them."""
    return Fleet(
        settings=replace(ONE_DEPTH, window_seconds=window_s),
        replicas=1,
        tick_s=window_s,
        acceptance=accepting(FITS),
        pair=pair,
    )


def follow(fleet: Fleet, days: float, course: Callable[[float], float]) -> Fleet:
    """Acceptance of the first position as a function of the days from now on."""
    began_s = fleet.now_s
    while fleet.now_s < began_s + days * DAY_S:
        fleet.acceptance = accepting(course((fleet.now_s - began_s) / DAY_S))
        fleet.run(fleet.tick_s)
    return fleet


def mismatches(fleet: Fleet) -> list[tuple[Reason | None, float]]:
    """Each change of the condition, and when (hours since the start); None: it is not True."""
    found: list[tuple[Reason | None, float]] = []
    for at_s, decision in fleet.decisions:
        reason = next(
            (each.reason for each in decision.alarms if each.kind is AlarmKind.DRAFT_MISMATCH), None
        )
        if reason is not (found[-1][0] if found else None):
            found.append((reason, (at_s - START_S) / HOUR_S))
    return found


def reasons(fleet: Fleet) -> list[Reason | None]:
    return [reason for reason, _ in mismatches(fleet)]


def fallen(days_after: float = 3.0) -> Fleet:
    """Acceptance has fallen for good, a day and a half after the draft came."""
    fleet = days_long().run(1.5 * DAY_S)
    fleet.acceptance = accepting(FALLEN)
    return fleet.run(days_after * DAY_S)


def message(fleet: Fleet) -> str:
    alarm = fleet.alarm(AlarmKind.DRAFT_MISMATCH)
    assert alarm is not None, mismatches(fleet)
    return alarm.message


# A cliff that lasts


def test_a_cliff_that_is_learned_as_normal_stands_on_with_another_reason() -> None:
    fleet = fallen(days_after=10)
    assert reasons(fleet) == [Reason.ACCEPTANCE_CLIFF, Reason.ACCEPTANCE_BELOW_REFERENCE]
    since = {each.since_s for _, decision in fleet.decisions for each in decision.alarms}
    assert len(since) == 1
    assert message(fleet).startswith("Since 2023-11-16T12:13:20Z the first draft token is accepted")
    assert "before, it was 81% or more nine tenths of the time" in message(fleet)


def test_an_operator_that_restarts_all_the_time_says_the_same() -> None:
    fleet = days_long()
    # What a restart loses is the last look, without which there is no window.
    fleet.between = lambda state: replace(
        TuningState.from_json(state.to_json()), looks=state.looks, held=state.held
    )
    fleet.run(1.5 * DAY_S)
    fleet.acceptance = accepting(FALLEN)
    fleet.run(3 * DAY_S)
    assert mismatches(fleet) == mismatches(fallen())


def test_it_is_over_after_an_hour_of_acceptance_as_before_and_not_after_a_burst() -> None:
    fleet = fallen(days_after=0.4)
    for first in (FITS, FALLEN):
        fleet.acceptance = accepting(first)
        fleet.run(HOUR_S)
    assert reasons(fleet) == [Reason.ACCEPTANCE_CLIFF, Reason.ACCEPTANCE_BELOW_REFERENCE]

    fleet.acceptance = accepting(FITS)
    fleet.run(2.5 * HOUR_S)
    assert reasons(fleet)[2:] == [None]


def test_days_below_are_over_with_a_day_that_is_not() -> None:
    fleet = fallen()
    fleet.acceptance = accepting(FITS)
    fleet.run(3 * HOUR_S)
    assert "first day of this draft" in message(fleet)
    fleet.run(2 * DAY_S)
    assert reasons(fleet)[-2:] == [Reason.ACCEPTANCE_BELOW_REFERENCE, None]


def test_one_pod_that_differs_keeps_no_reference_from_being_taken() -> None:
    fleet = days_long()
    for _ in range(2):
        fleet.add_pod()
    fleet.pods[0].other_acceptance = accepting(0.3)
    fleet.run(1.5 * DAY_S)
    assert reasons(fleet) == [Reason.ONE_POD_DIFFERS]
    assert fleet.state.reference is not None
    assert fleet.state.reference.is_taken


def test_what_falls_within_hours_of_a_new_draft_ends_by_itself() -> None:
    fleet = days_long(window_s=300.0).run(4 * HOUR_S)
    fleet.acceptance = accepting(FALLEN)
    fleet.run(10 * HOUR_S)
    assert reasons(fleet) == [Reason.ACCEPTANCE_CLIFF, None]


def test_what_falls_as_low_as_on_a_day_of_the_first_week_ends_by_itself() -> None:
    fleet = days_long(HOUR_S)
    follow(fleet, 2, lambda day: FITS if day < 1.4 else 0.62)
    follow(fleet, 6.5, lambda day: 0.535 if day < 1.2 else FITS)
    assert mismatches(fleet) == []
    fleet.acceptance = accepting(0.465)
    fleet.run(2 * DAY_S)
    assert reasons(fleet) == [Reason.ACCEPTANCE_CLIFF, None]


def test_what_is_served_must_be_known() -> None:
    fleet = days_long(pair=None).run(1.5 * DAY_S)
    fleet.acceptance = accepting(FALLEN)
    fleet.run(2 * DAY_S)
    assert reasons(fleet) == [Reason.ACCEPTANCE_CLIFF, None]
    assert fleet.state.reference is None


# A slow fall


@pytest.mark.parametrize(("points_a_day", "at_least"), [(2, 0.6), (5, 0.5), (10, 0.37), (20, 0.22)])
@pytest.mark.parametrize("hours_into_a_day", [0, 12])
def test_a_slow_fall_is_raised_as_soon_as_whole_days_show_it(
    points_a_day: int, at_least: float, hours_into_a_day: int
) -> None:
    fleet = days_long(2 * HOUR_S).run(7 * DAY_S + hours_into_a_day * HOUR_S)
    began_s = fleet.now_s
    follow(fleet, 11, lambda day: max(0.1, FITS - points_a_day / 100 * day))
    after_s = fleet.raised_after_s(AlarmKind.DRAFT_MISMATCH, began_s)
    assert after_s is not None
    assert FITS - points_a_day / 100 * after_s / DAY_S > at_least
    assert reasons(fleet) == [Reason.ACCEPTANCE_BELOW_REFERENCE]


@pytest.mark.parametrize(("points_a_day", "at_least"), [(5, 0.43), (10, 0.37), (20, 0.18)])
def test_a_fall_from_the_first_day_on_is_raised_within_the_first_week(
    points_a_day: int, at_least: float
) -> None:
    fleet = follow(days_long(2 * HOUR_S), 8, lambda day: max(0.1, FITS - points_a_day / 100 * day))
    after_s = fleet.raised_after_s(AlarmKind.DRAFT_MISMATCH, START_S)
    assert after_s is not None
    assert FITS - points_a_day / 100 * after_s / DAY_S > at_least


def test_a_slow_fall_is_told_with_the_days_that_show_it() -> None:
    fleet = days_long(2 * HOUR_S).run(7 * DAY_S)
    follow(fleet, 8, lambda day: max(0.3, FITS - 0.1 * day))
    assert message(fleet) == (
        "Over the last day with drafts, the first draft token was accepted 30% of the time; on the "
        "first day of this draft it was 81%, and on the lowest day of its first week 81%. Since "
        "2023-11-14T22:13:20Z, target and draft are the same commits, and the engines' image and "
        "arguments are the same."
    )


# What is no fall


def daily(day: float) -> float:
    return 1 + 0.2 * cos(2 * pi * day)


def weekly(day: float) -> float:
    return 1 + 0.2 * cos(2 * pi * day / 7)


def by_weekday(day: float) -> float:
    """The weekend comes first, when the reference is taken."""
    return 1.15 if day % 7 < 2 else 0.85


@pytest.mark.parametrize("begins", [0.0, 0.5])
@pytest.mark.parametrize(
    "rhythm",
    [daily, weekly, by_weekday, lambda day: daily(day) * weekly(day)],
    ids=["of the day", "of the week", "of the weekend", "of day and week"],
)
def test_a_rhythm_is_no_fall(rhythm: Callable[[float], float], begins: float) -> None:
    offset = begins * (1 if rhythm is daily else 7)
    fleet = follow(days_long(2 * HOUR_S), 13, lambda day: 0.6 * rhythm(day + offset))
    assert mismatches(fleet) == []
    assert fleet.state.reference is not None
    assert fleet.state.reference.days == 12


def test_one_bad_day_is_no_fall() -> None:
    fleet = days_long(2 * HOUR_S).run(8 * DAY_S)
    follow(fleet, 2, lambda day: 0.6 if day < 1 else FITS)
    assert mismatches(fleet) == []


def test_another_depth_is_no_fall() -> None:
    """At depth 1 an answer has fewer tokens a step, and its first position is as good as before."""
    fleet = days_long(2 * HOUR_S).run(8 * DAY_S)
    fleet.pods[0].other_depth = 1
    fleet.run(4 * DAY_S)
    assert mismatches(fleet) == []
    assert fleet.state.reference is not None
    assert len(fleet.state.reference.last.reached) == 1


def test_without_drafts_all_stays_as_it_is() -> None:
    fleet = fallen()
    before = message(fleet)
    reference = fleet.state.reference
    fleet.pods[0].other_depth = 0
    fleet.run(5 * DAY_S)
    assert message(fleet) == before
    assert fleet.state.reference is not None
    assert reference is not None
    assert fleet.state.reference.days == reference.days


# How it ends otherwise


@pytest.mark.parametrize("part", ["target", "draft"])
def test_another_draft_or_target_ends_it_and_has_a_reference_of_its_own(part: str) -> None:
    fleet = fallen()
    fleet.pair = replace(PAIR, **{part: "another"})  # type: ignore[arg-type]
    fleet.run(HOUR_S)
    assert fleet.alarm(AlarmKind.DRAFT_MISMATCH) is None
    fleet.run(3 * DAY_S)
    assert fleet.alarm(AlarmKind.DRAFT_MISMATCH) is None
    assert fleet.state.reference is not None
    assert fleet.state.reference.pair == fleet.pair
    assert fleet.state.reference.lowest == pytest.approx(FALLEN, abs=0.01)


def test_other_arguments_do_not_end_it_and_are_told() -> None:
    fleet = fallen()
    fleet.pair = replace(PAIR, engine="another", commits=False)
    fleet.run(HOUR_S)
    assert message(fleet).endswith(
        "target and draft have the same names, but no commits that fix their weights, and the "
        "engines' image and arguments have changed."
    )


def test_nothing_is_told_of_what_pods_do_not_agree_on() -> None:
    fleet = fallen()
    fleet.pair = None
    fleet.run(HOUR_S)
    assert message(fleet).endswith("nine tenths of the time.")


@pytest.mark.parametrize("hours_later", [2, 60])
def test_a_person_ends_it_for_good(hours_later: int) -> None:
    fleet = fallen(days_after=hours_later / 24)
    fleet.new_reference = "2"
    fleet.run(HOUR_S)
    assert fleet.alarm(AlarmKind.DRAFT_MISMATCH) is None
    # A sync that takes the annotation away asks for nothing, nor does one that puts it back.
    for asked in ("", "2"):
        fleet.new_reference = asked
        fleet.run(DAY_S)
    assert fleet.alarm(AlarmKind.DRAFT_MISMATCH) is None
    assert fleet.state.reference is not None
    assert fleet.state.reference.days == 2
    assert first_position(fleet.state.reference.first) == pytest.approx(FALLEN, abs=0.01)


@pytest.mark.parametrize(
    "given",
    [{"pair": replace(PAIR, draft="another")}, {"new_reference": "2"}],
    ids=["another draft", "a person"],
)
def test_it_ends_at_once_and_is_no_traffic_that_came_back(given: dict[str, Any]) -> None:
    fleet = fallen(days_after=0.5)
    state = learn(replace(fleet.snapshot(), **given)).state
    assert fleet.state.watches
    assert state.watches == ()
    assert (state.acceptance.cliff, state.acceptance.healed) == (None, None)


def test_what_a_person_asked_for_is_remembered_beyond_a_draft() -> None:
    fleet = days_long().run(HOUR_S)
    for pair, asked in ((PAIR, "2"), (replace(PAIR, draft="another"), "")):
        fleet.pair, fleet.new_reference = pair, asked
        fleet.run(HOUR_S)
    assert fleet.state.reference is not None
    assert fleet.state.reference.asked == "2"


def test_what_falls_after_that_is_seen_again() -> None:
    fleet = fallen()
    fleet.new_reference = "2"
    fleet.run(1.5 * DAY_S)
    fleet.acceptance = accepting(0.2)
    fleet.run(DAY_S)
    assert reasons(fleet)[-2:] == [Reason.ACCEPTANCE_CLIFF, Reason.ACCEPTANCE_BELOW_REFERENCE]


# A day


def window(drafts: float, share: float = 0.8) -> Trials:
    return Trials((drafts, share * drafts), (share * drafts, 0.5 * share * drafts))


def begun(windows: int, drafts: float, *, seconds: float = HOUR_S) -> Reference:
    reference = Reference(pair=PAIR)
    for i in range(windows):
        at_s = START_S + i * seconds
        reference = reference.updated(window(drafts), at_s, at_s + seconds, alarmed=False)
    return reference


def days_of(*shares: float) -> Reference:
    """Days that are over, by the acceptance of their first position."""
    reference = Reference(pair=PAIR)
    for i, share in enumerate(shares):
        from_s = START_S + i * DAY_S
        reference = reference.updated(
            window(DAY_DRAFTS, share), from_s, from_s + DAY_S, alarmed=False
        )
    return reference


def test_what_is_far_below_is_no_part_of_the_first_week() -> None:
    assert days_of(0.8, 0.7, 0.4, 0.4).lowest == pytest.approx(0.7)
    assert days_of(0.8, 0.7, 0.4, 0.4).is_below
    assert not days_of(0.8, 0.7, 0.4, 0.7).is_below


def test_what_is_low_under_an_alarm_is_no_part_of_the_first_week() -> None:
    low = days_of(0.8).updated(
        window(DAY_DRAFTS, 0.6), START_S + DAY_S, START_S + 2 * DAY_S, alarmed=True
    )
    assert low.lowest == pytest.approx(0.8)


@pytest.mark.parametrize(
    ("last", "below"),
    [((0.6, 0.6), False), ((0.6, 0.6, 0.6), True), ((0.6, 0.6, 0.7, 0.6), False), ((0.4,), True)],
)
def test_days_in_a_row_are_below_the_lowest_of_the_week(
    last: tuple[float, ...], *, below: bool
) -> None:
    assert days_of(0.8, 0.72, *(0.8,) * 5, *last).is_below is below


def test_a_day_has_24_hours_of_time() -> None:
    assert not begun(23, DAY_DRAFTS).is_taken
    assert begun(24, DAY_DRAFTS).is_taken


def test_a_day_with_little_traffic_lasts_until_it_has_enough_drafts() -> None:
    assert not begun(199, 100.0).is_taken
    reference = begun(200, 100.0)
    assert reference.is_taken
    assert reference.began_at_s == START_S
    assert reference.first.reached[0] == pytest.approx(DAY_DRAFTS)


def test_hours_without_drafts_end_no_day_and_begin_none() -> None:
    reference = begun(23, DAY_DRAFTS)
    assert reference.updated(Trials(), START_S, START_S + 9 * DAY_S, alarmed=False) == reference


def test_what_is_low_under_an_alarm_is_no_part_of_a_first_day() -> None:
    reference = begun(23, DAY_DRAFTS)
    low = reference.updated(window(1e6, 0.1), START_S, START_S + 2 * DAY_S, alarmed=True)
    assert low == reference


def test_no_more_positions_are_kept_than_fit() -> None:
    deep = Trials((DAY_DRAFTS,) * 64, (DAY_DRAFTS,) * 64)
    reference = Reference(pair=PAIR).updated(deep, START_S, START_S + DAY_S, alarmed=False)
    assert len(reference.first.reached) == len(reference.first.accepted) == MOST_POSITIONS


def test_survival_is_shown_as_far_as_drafts_reached_it() -> None:
    day = Trials((10_000.0, 8_000.0, 999.0), (8_000.0, 4_000.0, 900.0))
    assert survival(day) == pytest.approx((0.8, 0.4))
