import random

import pytest

from fathom_local.demo.compare import paired_ratio


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
def test_what_cannot_be_compared_is_refused(ours: list[float], theirs: list[float]) -> None:
    with pytest.raises(ValueError, match=r"pairs|token"):
        paired_ratio(ours, theirs)
