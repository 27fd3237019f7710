import math
import random
from collections.abc import Callable
from functools import partial

import pytest
from scipy import integrate, stats

from local_cluster.demo.compare import Ratio, paired_ratio, sequential_ratio


def test_equal_ratios_leave_no_doubt() -> None:
    ratio = paired_ratio([110, 220, 55], [100, 200, 50])
    assert (ratio.low, ratio.high) == pytest.approx((1.1, 1.1), rel=1e-6)


def test_a_drift_of_the_machine_cancels_within_pairs() -> None:
    theirs = [100.0, 50.0, 200.0, 80.0, 120.0]
    noise = [1.01, 0.99, 1.0, 1.02, 0.98]
    ratio = paired_ratio([1.2 * t * n for t, n in zip(theirs, noise, strict=True)], theirs)
    assert ratio.low < 1.2 < ratio.high
    assert ratio.high - ratio.low < 0.06


def test_the_interval_covers_the_truth_as_often_as_it_says() -> None:
    rng = random.Random(7)
    covered = 0
    for _ in range(400):
        theirs = [rng.lognormvariate(5, 0.3) for _ in range(8)]
        ours = [1.05 * t * rng.lognormvariate(0, 0.04) for t in theirs]
        ratio = paired_ratio(ours, theirs)
        covered += ratio.low <= 1.05 <= ratio.high
    assert 0.92 <= covered / 400 <= 0.98


@pytest.mark.parametrize(
    ("ours", "theirs"), [([1.0], [1.0]), ([1.0, 2.0], [1.0]), ([0.0, 1.0], [0.0, 1.0])]
)
@pytest.mark.parametrize("compared", [paired_ratio, sequential_ratio])
def test_what_cannot_be_compared_is_refused(
    compared: Callable[[list[float], list[float]], object],
    ours: list[float],
    theirs: list[float],
) -> None:
    with pytest.raises(ValueError, match=r"pairs|token"):
        compared(ours, theirs)


def looked_at_after_every_pair(
    interval: Callable[[list[float], list[float]], Ratio],
    pair: Callable[[random.Random], float],
    runs: int = 400,
) -> float:
    """Share of the runs in which any interval of up to 40 pairs misses the truth."""
    rng = random.Random(15)
    missed = 0
    for _ in range(runs):
        theirs = [rng.lognormvariate(5, 0.3) for _ in range(40)]
        ours = [1.05 * each * math.exp(pair(rng)) for each in theirs]
        looks = (interval(ours[:pairs], theirs[:pairs]) for pairs in range(2, 41))
        missed += any(not look.low <= 1.05 <= look.high for look in looks)
    return missed / runs


def heavy_tailed(rng: random.Random) -> float:
    """Student's t with 3 degrees of freedom: now and then something else runs."""
    return 0.05 * rng.gauss(0, 1) / math.sqrt(rng.gammavariate(1.5, 2) / 3)


@pytest.mark.parametrize("pair", [lambda rng: rng.gauss(0, 0.2), heavy_tailed])
@pytest.mark.parametrize("miss", [0.05, 0.2])
def test_looking_after_every_pair_misses_the_truth_no_oftener_than_said(
    pair: Callable[[random.Random], float], miss: float
) -> None:
    missed = looked_at_after_every_pair(partial(sequential_ratio, miss=miss), pair)
    assert 0 < missed <= miss


def test_looking_often_is_what_a_fixed_interval_does_not_allow() -> None:
    missed = looked_at_after_every_pair(paired_ratio, lambda rng: rng.gauss(0, 0.2), runs=50)
    assert missed > 0.2


@pytest.mark.parametrize("pairs", [4, 5, 9, 30])
@pytest.mark.parametrize("miss", [0.05, 0.0125])
def test_the_interval_ends_where_the_mixture_is_so_many_times_likelier(
    pairs: int, miss: float
) -> None:
    """Against the mixture's definition, integrated by numbers: noncentral t over central t."""
    rng = random.Random(pairs)
    logs = [rng.gauss(0.1, 0.05) for _ in range(pairs)]
    ratio = sequential_ratio([math.exp(each) for each in logs], [1.0] * pairs, miss)
    if math.isinf(ratio.high):
        assert pairs == 4
        return
    error = float(stats.sem(logs))
    for end in (ratio.low, ratio.high):
        t = (math.log(ratio.estimate) - math.log(end)) / error
        mixed, _ = integrate.quad(
            lambda effect, t=t: (
                stats.nct.pdf(t, pairs - 1, math.sqrt(pairs) * effect)
                * stats.norm.pdf(effect, scale=math.sqrt(10))
            ),
            -20,
            20,
            points=[0, t / math.sqrt(pairs)],
            limit=200,
        )
        assert mixed / stats.t.pdf(t, pairs - 1) == pytest.approx(1 / miss, rel=0.01)


def test_the_first_pairs_bound_nothing_and_more_of_them_ever_more() -> None:
    theirs = [100.0, 104.0] * 20
    ours = [130.0, 130.0] * 20
    assert math.isinf(sequential_ratio(ours[:2], theirs[:2]).high)
    assert sequential_ratio(ours[:2], theirs[:2]).low == 0
    widths = [
        ratio.high / ratio.low
        for pairs in (6, 10, 20, 40)
        if (ratio := sequential_ratio(ours[:pairs], theirs[:pairs])).low
    ]
    assert widths == sorted(widths, reverse=True)
    assert len(widths) == 4


def test_who_is_compared_with_whom_and_in_which_unit_changes_nothing() -> None:
    rng = random.Random(3)
    ours, theirs = ([rng.lognormvariate(5, 0.1) for _ in range(9)] for _ in range(2))
    forth, back = sequential_ratio(ours, theirs), sequential_ratio(theirs, ours)
    assert (1 / back.high, 1 / back.low) == pytest.approx((forth.low, forth.high))
    scaled = sequential_ratio([1.1 * each for each in ours], theirs)
    assert scaled.low == pytest.approx(1.1 * forth.low)
