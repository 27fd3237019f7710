"""Ratios from paired slices. Pairing cancels what drifts slowly, such as a shared machine."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from scipy import stats

CONFIDENCE = 0.95
_FEWEST_PAIRS = 2


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

    Raises:
        ValueError: the lengths differ, there are fewer than two pairs, or a rate is not positive.
    """
    if len(ours) != len(theirs) or len(ours) < _FEWEST_PAIRS:
        raise ValueError(f"need two pairs or more of equal number: {len(ours)} and {len(theirs)}")
    if min(*ours, *theirs) <= 0:
        raise ValueError("a slice without a single token cannot be compared")
    logs = [math.log(a / b) for a, b in zip(ours, theirs, strict=True)]
    middle = sum(logs) / len(logs)
    error = float(stats.sem(logs))
    if error == 0:
        return Ratio(math.exp(middle), math.exp(middle), math.exp(middle), len(logs))
    low, high = stats.t.interval(CONFIDENCE, len(logs) - 1, loc=middle, scale=error)
    return Ratio(math.exp(middle), math.exp(low), math.exp(high), len(logs))
