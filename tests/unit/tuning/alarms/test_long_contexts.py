"""The alarm of long contexts: where drafting loses there outright, and nowhere else."""

from dataclasses import replace

import pytest

from fathom.api.conditions import AlarmKind, Reason
from fathom.tuning.alarms.alarm import Alarm
from unit.tuning.plant import HARD, MIDDLE, WINDOW_30, Fleet, Hardware, hours_long

HALF_AN_HOUR_S = 1800.0
DEAR = Hardware(per_token_s=0.003)
"""A drafted token costs a third of a step; at the usual acceptance that pays."""


def served(
    long_requests: tuple[float, float] | None, seconds: float = HALF_AN_HOUR_S, **changes: object
) -> Fleet:
    fleet = hours_long(**changes)
    of_long(fleet, long_requests)
    return fleet.run(seconds)


def of_long(fleet: Fleet, long_requests: tuple[float, float] | None) -> None:
    for pod in fleet.pods:
        pod.long_requests = long_requests


def mismatch(fleet: Fleet) -> Alarm | None:
    return fleet.alarm(AlarmKind.DRAFT_MISMATCH)


@pytest.mark.parametrize(
    ("times", "hardware"),
    [
        pytest.param(0.05, Hardware(), id="hardly anything is accepted there"),
        pytest.param(0.12, DEAR, id="by the step times less than drafting costs"),
    ],
)
def test_it_is_raised_where_drafting_loses_at_long_contexts(
    times: float, hardware: Hardware
) -> None:
    alarm = mismatch(served((0.3, times), hardware=hardware))

    assert alarm is not None
    assert alarm.reason is Reason.LONG_CONTEXT_REJECTED
    assert alarm.message.startswith("From 32k tokens of context on, 30% of the drafts, the first ")
    assert "EAGLE 3.1" in alarm.recommendation


@pytest.mark.parametrize(
    "long_requests",
    [
        pytest.param(None, id="an older plugin"),
        pytest.param((0.3, 1.0), id="no difference"),
        pytest.param((0.3, 0.6), id="text of another kind"),
        pytest.param((0.3, 0.4), id="less is accepted, and still pays"),
        pytest.param((0.03, 0.05), id="too few to be worth another draft"),
        pytest.param((1.0, 1.0), id="only long ones"),
    ],
)
def test_else_it_is_quiet(long_requests: tuple[float, float] | None) -> None:
    assert mismatch(served(long_requests)) is None


def test_where_drafts_fail_at_all_contexts_it_is_not_about_long_ones() -> None:
    assert mismatch(served((0.3, 0.8), acceptance=HARD, hardware=DEAR)) is None


def test_where_drafts_are_cut_nothing_is_known_by_context() -> None:
    fleet = served((0.3, 0.05), settings=replace(WINDOW_30, drafts_are_cut=True))
    assert mismatch(fleet) is None
    assert not fleet.state.contexts.ranges


def test_what_was_known_goes_once_drafts_are_cut() -> None:
    fleet = served((0.3, 0.7), seconds=120.0)
    assert fleet.state.contexts.ranges
    fleet.change(drafts_are_cut=True)
    fleet.run(120.0)
    assert not fleet.state.contexts.ranges


def test_it_is_over_once_long_contexts_are_served_as_well() -> None:
    fleet = served((0.3, 0.05))
    assert mismatch(fleet) is not None
    of_long(fleet, (0.3, 1.0))
    fleet.run(2 * HALF_AN_HOUR_S)
    assert mismatch(fleet) is None


def test_it_hides_no_cliff() -> None:
    fleet = served((0.3, 0.05), seconds=2 * HALF_AN_HOUR_S)
    fleet.acceptance = tuple(each / 3 for each in MIDDLE)
    fleet.run(HALF_AN_HOUR_S)
    alarm = mismatch(fleet)
    assert alarm is not None
    assert alarm.reason is Reason.ACCEPTANCE_CLIFF
