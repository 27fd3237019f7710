"""Which alarms a course justifies."""

import pytest

from benchmarks.tuner.course.course import WorldCourse
from benchmarks.tuner.outcome import AlarmRaised, CourseOutcome, outcome_of_depths
from benchmarks.tuner.results.alarm_truth import is_justified
from fathom.api.conditions import AlarmKind, Reason
from unit.benchmarks.tuner.worlds import HALF, course, world


def lived(of: WorldCourse) -> CourseOutcome:
    return outcome_of_depths(of, (of.batch > 0) * 3)


def justified(kind: AlarmKind, of: WorldCourse, *, minute: float) -> bool:
    alarm = AlarmRaised(kind, Reason.MEASURING, 60 * minute)
    return is_justified(alarm, of, lived(of))


@pytest.mark.parametrize(
    ("kind", "event"),
    [
        (AlarmKind.DRAFT_MISMATCH, {"kind": "mismatch", "at_minutes": 30}),
        (AlarmKind.ACCEPTANCE_DECAY, {"kind": "decay", "at_minutes": 30}),
        (AlarmKind.SUSPICIOUS_ACCEPTANCE, {"kind": "disobey", "at_minutes": 30, "minutes": 5}),
    ],
)
def test_an_event_justifies_its_alarm_and_no_other_from_then_on(
    kind: AlarmKind, event: dict[str, object]
) -> None:
    got = course(world(events=(event,)))
    assert not justified(kind, got, minute=29)
    assert justified(kind, got, minute=31)
    others = set(AlarmKind) - {kind}
    assert not any(justified(other, got, minute=31) for other in others)


@pytest.mark.parametrize("acceptance", [0.005, 0.995])
def test_acceptance_beyond_belief_is_suspicious(acceptance: float) -> None:
    got = course(world(classes=({**HALF, "acceptance": [acceptance]},)))
    assert justified(AlarmKind.SUSPICIOUS_ACCEPTANCE, got, minute=10)


def test_drafting_never_pays_where_no_depth_beats_none() -> None:
    # A draft token costs a tenth of a step.
    dear = course(world(classes=({**HALF, "acceptance": [0.05]},)))
    assert justified(AlarmKind.SPECULATION_NEVER_PAYS, dear, minute=50)
    assert not justified(AlarmKind.SPECULATION_NEVER_PAYS, course(world()), minute=50)


def test_a_depth_that_the_engines_lack_does_not_make_drafting_pay() -> None:
    # One draft would pay; the engines draft seven, or none.
    of = {
        "step_time": {"draft_token_ms": 3},
        "classes": ({**HALF, "acceptance": [0.95, 0.02]},),
    }
    fleet = {"tokens": 7, "graphs": {"depths": [0, 7]}}
    assert justified(AlarmKind.SPECULATION_NEVER_PAYS, course(world(**of, fleet=fleet)), minute=50)
    assert not justified(AlarmKind.SPECULATION_NEVER_PAYS, course(world(**of)), minute=50)


def test_what_never_pays_is_told_by_the_last_two_hours() -> None:
    turned = course(
        world(
            classes=({**HALF, "name": "good"}, {**HALF, "name": "bad", "acceptance": [0.05]}),
            events=(
                {"kind": "class_shift", "at_minutes": 0, "shares": {"good": 1}},
                {"kind": "class_shift", "at_minutes": 60, "shares": {"bad": 1}},
            ),
        ),
        hours=4,
    )
    early, late = (
        justified(AlarmKind.SPECULATION_NEVER_PAYS, turned, minute=minute) for minute in (70, 200)
    )
    assert (early, late) == (False, True)
