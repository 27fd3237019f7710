"""Rates, ratios and their intervals."""

import random

import pytest

from benchmarks.engine.estimates import (
    Held,
    Slice,
    Total,
    mean_rate,
    seconds_to_reach,
    steady_ratio,
    together,
    total,
    total_ratio,
)


def slices(*rates: float, steady: bool = True, seconds: float = 5.0) -> list[Slice]:
    return [Slice(number, steady, seconds, rate * seconds) for number, rate in enumerate(rates)]


def test_a_mean_rate_weighs_by_time() -> None:
    long, short = (
        Slice(0, steady=True, seconds=9, tokens=900),
        Slice(1, steady=True, seconds=1, tokens=200),
    )
    assert mean_rate([long, short]) == pytest.approx(110)


def test_a_disturbance_that_falls_on_a_whole_round_is_not_seen() -> None:
    ratio = steady_ratio(slices(100, 50, 100), slices(102, 51, 102))
    assert ratio.estimate == pytest.approx(100 / 102)
    assert (ratio.low, ratio.high) == pytest.approx((100 / 102, 100 / 102))


def test_what_was_measured_while_the_tuner_learnt_is_not_steady() -> None:
    learning = slices(1, 1, steady=False)
    ratio = steady_ratio([*learning, *slices(99, 99)], [*learning, *slices(100, 100)])
    assert ratio.estimate == pytest.approx(0.99)
    assert ratio.pairs == 2


def test_only_rounds_of_both_are_compared() -> None:
    assert steady_ratio(slices(90, 90, 10), slices(100, 100)).estimate == pytest.approx(0.9)


def test_one_round_has_no_interval() -> None:
    with pytest.raises(ValueError, match="two pairs"):
        steady_ratio(slices(1), slices(1))


def test_tokens_of_a_phase_are_the_rate_times_its_length() -> None:
    phase = total(slices(90, 110), seconds=60)
    assert phase.tokens == pytest.approx(6000)
    assert phase.error == pytest.approx(600)  # the mean of two has a standard error of 10 tokens/s


def test_one_slice_has_no_spread() -> None:
    with pytest.raises(ValueError, match="two slices"):
        total(slices(90), seconds=60)


def test_errors_of_phases_add_up_in_squares() -> None:
    assert together([Total(10, 3), Total(20, 4)]) == Total(30, 5)


def test_a_ratio_of_exact_totals_is_exact() -> None:
    ratio = total_ratio(Total(110, 0), Total(100, 0), 8)
    assert (ratio.low, ratio.estimate, ratio.high) == pytest.approx((1.1, 1.1, 1.1))


def test_the_interval_of_a_whole_trace_holds_the_truth_as_often_as_it_says() -> None:
    noise = random.Random(7)

    def arm(speed: float) -> Total:
        phases = (100.0, 300.0)
        return together(
            [
                total(slices(*(noise.gauss(speed * rate, 15) for _ in range(20))), seconds=60)
                for rate in phases
            ]
        )

    runs = 400
    held = 0
    for _ in range(runs):
        ratio = total_ratio(arm(1.05), arm(1.0), 40)
        held += ratio.low <= 1.05 <= ratio.high
    assert 0.91 < held / runs < 0.98


RATES = {0: 50.0, 3: 90.0, 6: 98.0, 7: 100.0}


def test_it_is_reached_with_the_first_depth_that_is_nearly_the_best() -> None:
    held = [Held(0.0, 3), Held(5.0, 6), Held(12.0, 7)]
    assert seconds_to_reach(97.0, held, RATES) == 5.0
    assert seconds_to_reach(99.0, held, RATES) == 12.0


def test_a_phase_that_begins_well_takes_no_time() -> None:
    assert seconds_to_reach(97.0, [Held(0.0, 7), Held(9.0, 0)], RATES) == 0.0


def test_a_depth_that_is_never_held_is_never_reached() -> None:
    assert seconds_to_reach(97.0, [Held(0.0, 3)], RATES) is None
