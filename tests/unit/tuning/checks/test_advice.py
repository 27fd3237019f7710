"""Mode Advise: nothing is changed, nothing is tried, and what Auto would do is said."""

from dataclasses import replace

import pytest

from fathom.api.choices import TuningMode
from fathom.api.conditions import AlarmKind, Reason
from fathom.engine.depth import flat
from fathom.tuning.interface import Action, TuningDecision
from unit.tuning.plant import EASY, MIDDLE, SETTINGS, WINDOW_30, Fleet, hours_long

ADVISE = replace(WINDOW_30, mode=TuningMode.ADVISE)


def last(fleet: Fleet) -> TuningDecision:
    return fleet.decisions[-1][1]


@pytest.fixture(scope="module")
def advised() -> Fleet:
    return hours_long(settings=ADVISE, acceptance=EASY).run(3600)


def test_the_document_stays_at_the_users_depth(advised: Fleet) -> None:
    assert len(advised.writes) == 1
    assert advised.document is not None
    assert advised.document.schedule == flat(SETTINGS.tokens, SETTINGS.max_batch)


def test_nothing_is_tried(advised: Fleet) -> None:
    assert {d.action for _, d in advised.decisions[1:]} == {Action.HOLD}
    assert all(not document.pods for _, document in advised.writes)


def test_the_gain_has_an_interval_that_is_wide_since_nothing_was_tried(advised: Fleet) -> None:
    decision = last(advised)
    assert decision.reason is Reason.ADVISING
    assert decision.expected_gain is not None
    assert decision.expected_gain > 0.1
    assert decision.expected_gain_sd is not None
    assert decision.expected_gain_sd > 0.03
    assert "Would move batch 3 from 3 to" in decision.message
    assert "predicted" in decision.message


def test_a_pinned_pod_narrows_the_interval(advised: Fleet) -> None:
    fleet = hours_long(settings=ADVISE, acceptance=EASY, jitter=0)
    fleet.pods[1].pinned_depth = 7
    fleet.run(3600)
    narrow, wide = last(fleet).expected_gain_sd, last(advised).expected_gain_sd
    assert narrow is not None
    assert wide is not None
    assert narrow < wide / 2


def test_new_advice_is_news_and_the_same_advice_is_not(advised: Fleet) -> None:
    news = [d for _, d in advised.decisions if d.notable]
    assert 1 <= len(news) <= 5
    assert not last(advised).notable


def test_where_nothing_is_better_it_says_so_and_promises_no_gain() -> None:
    fleet = hours_long(settings=replace(ADVISE, tokens=4, min_gain=0.1), acceptance=MIDDLE)
    decision = last(fleet.run(1800))
    assert decision.message.startswith("Would change nothing.")
    assert decision.expected_gain is None
    assert decision.expected_gain_sd is None


def test_alarms_work_in_mode_advise() -> None:
    fleet = hours_long(settings=ADVISE, acceptance=EASY).run(1200)
    fleet.acceptance = (0.2,) * 16
    fleet.run(600)
    assert fleet.alarm(AlarmKind.DRAFT_MISMATCH) is not None


def test_from_auto_to_advise_and_back() -> None:
    fleet = Fleet(acceptance=EASY, jitter=0).run(240)
    assert fleet.depth() == 7

    fleet.change(mode=TuningMode.ADVISE)
    fleet.run(300)
    assert fleet.depth() == SETTINGS.tokens
    assert last(fleet).reason is Reason.ADVISING
    # What Auto measured is still known.
    assert "from 3 to 7" in last(fleet).message

    probes = len(fleet.actions(Action.PROBE))
    since_s = fleet.now_s
    fleet.change(mode=TuningMode.AUTO)
    fleet.run(60)
    moved_s = [at_s for at_s, d in fleet.decisions if at_s >= since_s and d.action is Action.MOVE]
    assert fleet.depth() == 7, fleet.log()
    assert moved_s
    assert len(fleet.actions(Action.PROBE)) == probes
