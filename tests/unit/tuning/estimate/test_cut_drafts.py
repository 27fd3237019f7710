"""The tuner where drafts are cut before they are verified: by tokens, and not by acceptance."""

from dataclasses import replace

import pytest

from fathom.api.conditions import AlarmKind
from fathom.tuning.estimate.acceptance_by_position import Survival
from fathom.tuning.estimate.yields import Yields
from fathom.tuning.explanation import explain
from unit.tuning.plant import EASY, HARD, SETTINGS, Fleet, best_depth

CUT = replace(SETTINGS, drafts_are_cut=True)
HOPELESS = (0.004,) * 16


@pytest.mark.parametrize("acceptance", [EASY, HARD])
def test_it_finds_the_best_depth_by_what_steps_yield(acceptance: tuple[float, ...]) -> None:
    fleet = Fleet(settings=CUT, acceptance=acceptance).run(900)
    assert fleet.depth() == best_depth(fleet.hardware, acceptance, fleet.concurrency)


def test_it_follows_traffic_that_turns() -> None:
    fleet = Fleet(settings=CUT, acceptance=EASY).run(600)
    fleet.acceptance = HARD
    fleet.run(900)
    assert fleet.depth() == best_depth(fleet.hardware, HARD, fleet.concurrency)
    assert fleet.state.text.epoch >= 1


def test_other_text_takes_other_steps_so_those_are_forgotten_with_it() -> None:
    fleet = Fleet(settings=CUT, acceptance=EASY).run(600)
    before, epoch = len(fleet.state.step_times.cells), fleet.state.text.epoch
    fleet.acceptance = HARD
    while fleet.state.text.epoch == epoch:
        fleet.run(5)
    assert len(fleet.state.step_times.cells) < before / 2


def test_nothing_is_learnt_or_told_of_acceptance_by_position() -> None:
    fleet = Fleet(settings=CUT, acceptance=EASY).run(120)
    before = Fleet().state
    assert (fleet.state.survival, fleet.state.acceptance) == (before.survival, before.acceptance)
    measured = fleet.state.measured
    assert measured is not None
    assert (measured.survival, measured.acceptance_rate) == ((), None)
    assert measured.acceptance_length is not None
    found = explain(fleet.state, CUT, fleet.document, fleet.now_s)
    assert found.positions == ()
    assert found.buckets


def test_no_alarm_rests_on_what_was_never_verified() -> None:
    cut, whole = (Fleet(settings=each, acceptance=HOPELESS).run(1800) for each in (CUT, SETTINGS))
    assert whole.alarm(AlarmKind.SUSPICIOUS_ACCEPTANCE) is not None
    assert cut.alarm(AlarmKind.SUSPICIOUS_ACCEPTANCE) is None


def test_once_nothing_is_cut_any_more_acceptance_decides_again() -> None:
    fleet = Fleet(settings=CUT, acceptance=EASY).run(60)
    assert isinstance(fleet.state.text, Yields)
    fleet.change(drafts_are_cut=False)
    fleet.run(60)
    assert fleet.state.yields is None
    assert fleet.state.text is fleet.state.survival
    assert any(fleet.state.survival.pooled().reached)


def test_what_was_known_of_acceptance_goes_when_drafts_are_cut() -> None:
    """Both kinds of knowledge do not fit into the largest state."""
    fleet = Fleet(acceptance=EASY).run(60)
    fleet.change(drafts_are_cut=True)
    fleet.run(60)
    assert fleet.state.survival == Survival()
    assert fleet.state.yields is not None


def test_what_was_learnt_survives_a_restart_of_the_operator() -> None:
    state = Fleet(settings=CUT, acceptance=EASY).run(300).state
    assert state.yields is not None
    assert state.from_json(state.to_json()).yields == state.yields
