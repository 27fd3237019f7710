"""Ratios from paired slices. Pairing cancels what drifts slowly, such as a shared machine."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from scipy import stats

CONFIDENCE = 0.95
_FEWEST_PAIRS = 2
_EFFECT_PRECISION: Final = 0.1
"""Precision of the normal mixture over mean / spread, around 0. Any value is valid; a small one
searches for differences of several times the spread, which a handful of pairs then decides."""


@dataclass(frozen=True, slots=True)
class Ratio:
    """A ratio of tokens per second with its confidence interval."""

    estimate: float
    low: float
    high: float
    pairs: int

    def __str__(self) -> str:
        return f"{self.estimate:.2f}× [{self.low:.2f}, {self.high:.2f}]"


def paired_ratio(ours: Sequence[float], theirs: Sequence[float]) -> Ratio:
    """Geometric mean of `ours[i] / theirs[i]` with Student's 95 % interval on the logarithms.

    For a number of pairs that was chosen before; else see `sequential_ratio`.

    Raises:
        ValueError: the lengths differ, there are fewer than two pairs, or a rate is not positive.
    """
    middle, error = _mean_and_error(ours, theirs)
    if error == 0:
        return Ratio(math.exp(middle), math.exp(middle), math.exp(middle), len(ours))
    low, high = stats.t.interval(CONFIDENCE, len(ours) - 1, loc=middle, scale=error)
    return Ratio(math.exp(middle), math.exp(low), math.exp(high), len(ours))


def sequential_ratio(
    ours: Sequence[float], theirs: Sequence[float], miss: float = 1 - CONFIDENCE
) -> Ratio:
    """Geometric mean of `ours[i] / theirs[i]` with an interval that may be looked at at any time.

    The intervals after 2, 3, 4 … pairs are a confidence sequence: all of them hold the truth at
    once, but for a probability of `miss`. So one may look after every pair, and stop when the
    interval decides, or at any other time.

    Each holds the means that the t-test's martingale has not refuted: the likelihood of t under a
    normal mixture of mean / spread, over that under the mean in question. It ever exceeds
    1 / miss with a probability of `miss` at most (Ville's inequality). Valid for independent
    pairs with normal logarithms of any spread, which need not be known. By simulation heavy
    tails and a steady drift do no harm, but slow swings do, where a pair resembles the one
    before. The first three or so bound nothing: [0, ∞].

    Source: Wang and Ramdas, "Anytime-valid t-tests and confidence sequences for Gaussian means
    with unknown variance" (arXiv 2310.03722): Lai's confidence sequence (Annals of Statistics 4,
    1976) with the Gaussian mixture, as Robbins has it for a known spread.

    Args:
        ours: tokens per second, slice by slice.
        theirs: the same for the other of each pair.
        miss: probability that any of the intervals misses the truth.

    Raises:
        ValueError: the lengths differ, there are fewer than two pairs, or a rate is not positive.
    """
    middle, error = _mean_and_error(ours, theirs)
    pairs = len(ours)
    shrunk = _EFFECT_PRECISION / (pairs + _EFFECT_PRECISION)
    grown = (1 / (miss**2 * shrunk)) ** (1 / pairs)
    if grown * shrunk >= 1:
        return Ratio(math.exp(middle), 0.0, math.inf, pairs)
    half = error * math.sqrt((pairs - 1) * (grown - 1) / (1 - grown * shrunk))
    return Ratio(math.exp(middle), math.exp(middle - half), math.exp(middle + half), pairs)


def _mean_and_error(ours: Sequence[float], theirs: Sequence[float]) -> tuple[float, float]:
    """Mean of the logarithm of the ratio, and the mean's standard error."""
    if len(ours) != len(theirs) or len(ours) < _FEWEST_PAIRS:
        raise ValueError(f"need two pairs or more of equal number: {len(ours)} and {len(theirs)}")
    if min(*ours, *theirs) <= 0:
        raise ValueError("a slice without a single token cannot be compared")
    logs = [math.log(a / b) for a, b in zip(ours, theirs, strict=True)]
    middle = sum(logs) / len(logs)
    squares = sum((each - middle) ** 2 for each in logs)
    return middle, math.sqrt(squares / (len(logs) - 1) / len(logs))
