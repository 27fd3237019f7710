"""Tokens per second by batch and depth: the same estimates that decide."""

from dataclasses import replace

import pytest

from fathom.tuning.learned_state import TuningState
from fathom.tuning.surface import Speed, surface
from unit.cli.test_explain import DOCUMENT, FOUR, NOW_S, STATE


def speeds() -> dict[tuple[int, int], Speed]:
    rows = surface(STATE, FOUR, DOCUMENT, NOW_S)
    return {(row.last, each.depth): each for row in rows for each in row.speeds}


def test_a_speed_is_batch_times_acceptance_length_over_step_time() -> None:
    # E[L | 2] = 1 + .8 + .48, and a step at batch 4 and depth 2 took 10 ms.
    found = speeds()[4, 2]

    assert found.tokens_per_second == pytest.approx(4 * 2.28 / 0.010, rel=0.01)
    assert found.measured


def test_what_was_not_measured_is_marked_as_predicted() -> None:
    found = speeds()
    assert {at: each.measured for at, each in found.items() if at[0] == 8} == {
        (8, 1): False,
        (8, 2): True,
        (8, 3): True,
        (8, 4): False,
    }
    assert found[8, 4].tokens_per_second is not None


def test_what_is_in_force_is_what_the_document_says() -> None:
    assert [at for at, each in speeds().items() if each.in_force] == [(4, 3), (8, 2)]
    rows = surface(STATE, FOUR, None, NOW_S)
    assert not any(each.in_force for row in rows for each in row.speeds)


def test_batches_that_the_engine_no_longer_has_are_left_out() -> None:
    rows = surface(STATE, replace(FOUR, max_batch=4), DOCUMENT, NOW_S)
    assert [row.last for row in rows] == [4]


def test_nothing_measured_is_no_row() -> None:
    assert surface(TuningState(), FOUR, DOCUMENT, NOW_S) == ()
