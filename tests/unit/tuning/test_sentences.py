"""Why depth moves or stays, in words."""

from dataclasses import replace

import pytest

from fathom.api.conditions import Reason
from fathom.tuning.policy.option import DepthOption
from fathom.tuning.policy.value import Gain
from fathom.tuning.sentences import moves, stays


def option(mean: float, bucket: int = 8) -> DepthOption:
    return DepthOption(
        bucket=bucket,
        start=3,
        to=5,
        gain=Gain(mean=mean, sd=0.01, step_time_measured=True, survival_measured=True),
        share=1.0,
    )


@pytest.mark.parametrize(
    ("means", "reason", "begins"),
    [
        ([], Reason.AT_BEST, "There is no other depth"),
        ([-0.02, -0.01], Reason.AT_BEST, "The depths in force are the best known: batch 8"),
        ([0.0], Reason.AT_BEST, "The depths in force are the best known: batch 8"),
        ([-0.02, 0.005], Reason.GAIN_TOO_SMALL, "No change gains 2.0% or more: batch 8"),
        ([0.005, 0.04], Reason.GAIN_UNCERTAIN, "A gain is possible, but within the error: batch"),
    ],
)
def test_the_best_other_depth_says_why_none_is_taken(
    means: list[float], reason: Reason, begins: str
) -> None:
    told, text = stays([option(mean) for mean in means], 256, 0.02)
    assert told is reason
    assert text.startswith(begins)
    assert text.count("stays at 3, next best 5") == len(means)


def test_what_was_never_tried_is_not_said_to_be_within_the_error() -> None:
    predicted = replace(option(0.94), gain=replace(option(0.94).gain, step_time_measured=False))
    told, text = stays([predicted], 256, 0.02)
    assert told is Reason.GAIN_UNCERTAIN
    assert text.startswith("A gain is possible, but is to be tried first: batch 8 stays at 3")


def test_each_batch_that_moves_is_named() -> None:
    text = moves([option(0.04, 4), option(0.04, 8)], 256)
    assert text.count(" from 3 to 5 (+4.1% ± ") == 2
    assert text.startswith("batch 4 from")
