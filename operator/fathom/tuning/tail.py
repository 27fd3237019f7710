"""The slow end of time per output token (TPOT): what an SLO is about.

vLLM's histogram gives the 95th percentile over all requests, at the depths in force. What it would
be at other depths follows from what makes requests differ: how easy their text is to draft. A shift
of all positions' log-odds by z standard deviations changes log E[L | k] by z·σ·g(k), where g is
`Lengths.logit_slope`; depth 0 does not care. So the distance between the 95th percentile and the
mean, measured at one depth, scales with g(k) to another: deeper drafts make the slow requests
relatively slower, and the depth that is fastest on average need not be the one that keeps an SLO.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from math import inf, log
from typing import Final

from fathom.core.measurement import Histogram, PodDelta

QUANTILE: Final = 0.95
HALF_LIFE_S: Final = 120.0
LEAST_REQUESTS: Final = 20.0
"""Fewer finished requests have no 95th percentile."""


@dataclass(frozen=True, slots=True)
class Tail:
    """Finished requests of the last minutes, discounted."""

    tpot: Histogram = ()
    seconds_sum: float = 0.0
    """Sum of their times per output token (seconds)."""
    at_s: float = 0.0

    def updated(self, deltas: Iterable[PodDelta]) -> "Tail":
        """With one more window."""
        histogram, seconds, at_s = dict(self.tpot), self.seconds_sum, self.at_s
        added = False
        for each in deltas:
            if not each.tpot or each.tpot[-1][1] <= 0:
                continue
            if not added:
                kept = 0.5 ** (max(0.0, each.to_s - at_s) / HALF_LIFE_S) if at_s else 0.0
                histogram = {le: kept * count for le, count in histogram.items()}
                seconds *= kept
                added = True
            for le, count in each.tpot:
                histogram[_finite(le)] = histogram.get(_finite(le), 0.0) + count
            seconds += each.engine.tpot_seconds_sum
            at_s = max(at_s, each.to_s)
        return Tail(tuple(sorted(histogram.items())), seconds, at_s) if added else self

    @property
    def requests(self) -> float:
        return self.tpot[-1][1] if self.tpot else 0.0

    @property
    def mean_seconds(self) -> float | None:
        return self.seconds_sum / self.requests if self.requests >= LEAST_REQUESTS else None

    @property
    def slow_seconds(self) -> float | None:
        """The 95th percentile, interpolated in its bucket on a logarithmic scale.

        vLLM's buckets are a factor of 1.3 to 2.5 wide; an SLO at one of their bounds is judged
        exactly.
        """
        if self.requests < LEAST_REQUESTS:
            return None
        wanted = QUANTILE * self.requests
        below, count_below = 0.0, 0.0
        for le, count in self.tpot:
            if count >= wanted and count > count_below:
                if le >= INFINITE_S:
                    return below
                low = max(below, le / 2)
                return float(low * (le / low) ** ((wanted - count_below) / (count - count_below)))
            below, count_below = le, count
        return None

    def slow_over_mean(self) -> float | None:
        """Logarithm of the 95th percentile over the mean."""
        slow, mean = self.slow_seconds, self.mean_seconds
        return max(0.0, log(slow / mean)) if slow and mean else None


INFINITE_S: Final = 1e9
"""Stands for +Inf, which JSON cannot say."""


def _finite(le: float) -> float:
    return INFINITE_S if le == inf else le
