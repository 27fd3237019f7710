from math import exp, log, sqrt

import pytest

from fathom.measurement.counters import DraftCell, DraftCounts
from fathom.tuning.estimate.acceptance_by_position import (
    HALF_LIFE_S,
    SLOW_HALF_LIFE_S,
    TURN_S,
    Survival,
)
from fathom.tuning.estimate.acceptance_length import Lengths, Position, Trials, trials


def window(n: float, *acceptance: float) -> Trials:
    reached, accepted = [], []
    for each in acceptance:
        reached.append(n)
        n *= each
        accepted.append(n)
    return Trials(tuple(reached), tuple(accepted))


def after(*windows: Trials, step_s: float = 10.0) -> Survival:
    survival = Survival()
    for i, each in enumerate(windows):
        survival = survival.updated(each, 1000.0 + i * step_s)
    return survival


def lengths(survival: Survival) -> Lengths:
    return survival.lengths(8, survival.at_s)


def test_a_position_counts_only_drafts_that_were_deep_enough() -> None:
    counted = trials(
        {
            DraftCell(1, 1): DraftCounts(100.0, (90.0,)),
            DraftCell(4, 3): DraftCounts(10.0, (8.0, 4.0, 1.0)),
        }
    )
    assert counted == Trials((110.0, 8.0, 4.0), (98.0, 4.0, 1.0))


def test_expected_length_is_one_plus_the_survivals() -> None:
    survival = after(*[window(1e6, 0.8, 0.5)] * 3)
    assert lengths(survival).at(0) == 1
    assert lengths(survival).at(2) == pytest.approx(1 + 0.8 + 0.4, rel=1e-3)


def test_deeper_than_drafted_is_extrapolated_with_a_wider_error() -> None:
    survival = after(*[window(1e5, 0.9)] * 3)
    assert survival.drafted() == 1
    assert lengths(survival).at(2) == pytest.approx(1 + 0.9 + 0.9 * 0.98 * 0.9, rel=0.01)

    errors = [sqrt(lengths(survival).log_ratio(depth, 1)[1]) for depth in (2, 3, 5)]
    assert 0.01 < errors[0] < errors[1] < errors[2]


def test_the_ratio_agrees_with_the_lengths_and_is_certain_of_itself() -> None:
    survival = after(*[window(1e4, 0.7, 0.7, 0.7)] * 3)
    mean, variance = lengths(survival).log_ratio(3, 1)
    assert exp(mean) == pytest.approx(lengths(survival).at(3) / lengths(survival).at(1))
    assert variance > 0
    assert lengths(survival).log_ratio(2, 2) == (0.0, 0.0)


def test_what_was_drafted_twenty_minutes_ago_counts_a_quarter() -> None:
    survival = after(*[window(1000, 0.8)] * 30, step_s=2 * HALF_LIFE_S)
    newest, older = 3 * 1000, 1000 / (1 - 1 / 4)
    assert survival.pooled().reached[0] == pytest.approx(newest + older)


@pytest.mark.parametrize("acceptance", [0.5, 0.9])
def test_the_error_is_that_of_a_share_of_independent_trials(acceptance: float) -> None:
    survival = after(window(10_000, acceptance))
    (first,) = survival.lengths(1, survival.at_s).positions
    worth = 10_000 / survival.design_effect
    assert first.variance == pytest.approx(acceptance * (1 - acceptance) / worth, rel=0.02)


def test_a_change_of_traffic_drops_what_came_before() -> None:
    before = after(*[window(3000, 0.9, 0.9, 0.9)] * 5)
    changed = before.updated(window(3000, 0.2, 0.2, 0.2), 1060.0)

    assert before.epoch == 0
    assert changed.epoch == 1
    assert lengths(changed).at(1) == pytest.approx(1.2, abs=0.02)


def test_a_window_is_compared_with_no_more_certainty_than_what_came_before_has() -> None:
    """A few hundred drafts of before cannot tell 0.5 from 0.62, however many there are now."""
    little = after(window(250, 0.5))
    plenty = after(*[window(3000, 0.5)] * 3)
    now = window(30_000, 0.62)

    assert little.updated(now, 1060.0).epoch == 0
    assert plenty.updated(now, 1060.0).epoch == 1


def test_how_often_traffic_turns_is_learnt_and_forgotten_over_hours() -> None:
    unknown = Survival().turns_per_s
    turning = after(*[*[window(3000, 0.9)] * 5, *[window(3000, 0.2)] * 5] * 20)
    passed_s = turning.at_s - 1000.0
    quiet = after(*[window(3000, 0.9)] * 200)
    later = turning.updated(window(3000, 0.2), turning.at_s + SLOW_HALF_LIFE_S)

    assert unknown == 1 / TURN_S
    assert turning.turns == pytest.approx(turning.epoch, rel=0.1)
    assert turning.turns_per_s == pytest.approx((1 + turning.epoch) / (TURN_S + passed_s), rel=0.1)
    assert later.turns == pytest.approx(turning.turns / 2)
    assert quiet.turns_per_s < unknown < later.turns_per_s < turning.turns_per_s


def test_normal_traffic_is_that_of_the_slow_horizon() -> None:
    before = after(*[window(3000, 0.9, 0.8)] * 5)
    changed = before.updated(window(3000, 0.1), 1060.0, normal=False)
    assert lengths(changed).at(2) < 1.3
    assert lengths(changed.normal(1060.0)).at(2) == pytest.approx(lengths(before).at(2), rel=0.01)


def test_a_small_lasting_change_is_noticed_over_several_windows() -> None:
    survival = after(*[window(3000, 0.80)] * 20)
    epochs = []
    for i in range(3):
        survival = survival.updated(window(3000, 0.70), 1200.0 + 10 * i)
        epochs.append(survival.epoch)
    assert epochs[-1] == 1


def test_chance_is_no_change() -> None:
    survival = after(*[window(300, 0.5), window(300, 0.6), window(300, 0.4)] * 5)
    assert survival.epoch == 0


def test_nothing_drafted_changes_nothing() -> None:
    survival = after(window(1000, 0.5))
    assert survival.updated(Trials(), 9999.0) is survival


def test_the_design_effect_is_learnt_from_how_windows_scatter() -> None:
    calm = after(*[window(3000, 0.6)] * 200)
    # Half the windows 8 points above the other half: their variance is far above the binomial's.
    scattered = after(*[window(3000, 0.6), window(3000, 0.68)] * 100)

    assert calm.design_effect == pytest.approx(2, abs=0.1)
    binomial = 0.64 * 0.36 / 3000
    assert scattered.design_effect == pytest.approx(0.04**2 / binomial, rel=0.4)


def test_what_is_known_of_acceptance_gets_old_when_nothing_is_drafted() -> None:
    survival = after(*[window(3000, 0.9)] * 5)
    fresh = survival.lengths(1, survival.at_s).log_ratio(1, 0)[1]
    old = survival.lengths(1, survival.at_s + 7200).log_ratio(1, 0)[1]
    assert old > 4 * fresh


def test_how_positions_relate_is_learnt_over_hours() -> None:
    usual = after(*[window(30_000, 0.8, 0.4)] * 20)
    fresh = usual.updated(window(3000, 0.4), 1200.0)

    assert fresh.epoch == 1
    # Not drafted since the change: half as likely as the one before, as ever.
    assert lengths(fresh).at(2) == pytest.approx(1 + 0.4 + 0.4 * 0.2, rel=0.02)


@pytest.mark.parametrize("depth", [0, 3])
def test_where_all_is_accepted_an_answer_ends_anywhere_in_its_last_step(depth: int) -> None:
    """Steps of one length, so that half of what is drafted lies beyond the end."""
    certain = Lengths(tuple(Position(1.0, 0.0, 0.0) for _ in range(7)))
    assert certain.overshoot(depth) == pytest.approx(depth / 2)


def test_gradients_are_the_derivatives_of_the_length() -> None:
    means = (0.9, 0.7, 0.5)
    base = Lengths(tuple(Position(each, 0.0, 0.0) for each in means))
    odds = [each / (1 - each) * exp(1e-6) for each in means]
    easier = Lengths(tuple(Position(each / (1 + each), 0.0, 0.0) for each in odds))
    slope = (log(easier.at(3)) - log(base.at(3))) / 1e-6

    assert base.logit_slope(3) == pytest.approx(slope, rel=1e-3)


def test_a_large_change_is_noticed_however_much_windows_scattered_before() -> None:
    scattered = after(*[window(3000, 0.9), window(3000, 0.6)] * 100)
    changed = scattered.updated(window(600, 0.1), scattered.at_s + 10)
    assert changed.epoch == scattered.epoch + 1
