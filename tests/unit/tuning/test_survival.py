from math import exp, sqrt

import pytest

from fathom.core.measurement import DraftCell, DraftCounts
from fathom.tuning.survival import Survival, Trials, trials


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
    assert survival.expected_length(0) == 1
    assert survival.expected_length(2) == pytest.approx(1 + 0.8 + 0.4, rel=1e-3)


def test_deeper_than_drafted_is_extrapolated_with_a_wider_error() -> None:
    survival = after(*[window(1e5, 0.9)] * 3)
    assert survival.is_measured(1)
    assert not survival.is_measured(2)
    assert survival.expected_length(2) == pytest.approx(1 + 0.9 + 0.9 * 0.98 * 0.9, rel=0.01)

    errors = [sqrt(survival.log_length_ratio(depth, 1)[1]) for depth in (2, 3, 5)]
    assert 0.01 < errors[0] < errors[1] < errors[2]


def test_the_ratio_agrees_with_the_lengths_and_is_certain_of_itself() -> None:
    survival = after(*[window(1e4, 0.7, 0.7, 0.7)] * 3)
    mean, variance = survival.log_length_ratio(3, 1)
    assert exp(mean) == pytest.approx(survival.expected_length(3) / survival.expected_length(1))
    assert variance > 0
    assert survival.log_length_ratio(2, 2) == (0.0, 0.0)


def test_a_change_of_traffic_drops_what_came_before() -> None:
    before = after(*[window(3000, 0.9, 0.9, 0.9)] * 5)
    changed = before.updated(window(3000, 0.2, 0.2, 0.2), 1060.0)

    assert before.epoch == 0
    assert changed.epoch == 1
    assert changed.expected_length(1) == pytest.approx(1.2, abs=0.02)


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
