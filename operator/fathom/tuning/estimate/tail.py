"""The slow end of time per output token (TPOT): what an SLO is about.

vLLM's histogram gives the 95th percentile over all requests, at the depths in force. What it would
be at other depths follows from what makes requests differ: how easy their text is to draft. A shift
of all positions' log-odds by z standard deviations changes log E[L | k] by z·σ·g(k), where g is
`Lengths.logit_slope`; depth 0 does not care. So the distance between the 95th percentile and the
mean, measured at one depth, grows with g(k) towards another, as far as text is what makes them
differ: deeper drafts make the slow requests relatively slower, and the depth that is fastest on
average need not be the one that keeps an SLO.

Requests that are counted here ran minutes ago, some of them before the last move, some on a pod
that was probing. So it is kept where they ran, and what was measured is set against that, never
against what is in force now.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from math import exp, inf, log, sqrt
from statistics import NormalDist
from typing import Final

from fathom.measurement.counters import Histogram
from fathom.measurement.deltas import PodDelta
from fathom.tuning.estimate.acceptance_length import decay

QUANTILE: Final = 0.95
"""Quantile of the time per output token, over requests, that the SLO is about."""
HALF_LIFE_S: Final = 120.0
"""Half-life of finished requests: they show minutes ago as it is."""
LEVEL_WEIGHT: Final = 0.2
"""Weight of one window in the smoothed mean time per output token: a few windows count."""
SCATTER_WEIGHT: Final = 0.05
"""Weight of one window in how windows scatter about that: twenty count."""
MOST_SCATTER_SD: Final = 0.1
"""Scatter of windows, at most: the margin that it leaves below the SLO must not become the SLO."""
LEAST_REQUESTS: Final = 20.0
"""Fewer finished requests have no 95th percentile."""
LEAST_RAN_SHARE: Final = 1e-3
"""Share of the tokens below which a bucket and depth are forgotten."""


@dataclass(frozen=True, slots=True)
class Ran:
    """What was made in one bucket at one depth."""

    batch_le: int
    depth: int
    tokens: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Tail:
    """Finished requests of the last minutes, discounted."""

    tpot: Histogram = ()
    seconds_sum: float = 0.0
    """Sum of their times per output token (seconds)."""
    at_s: float = 0.0
    level: float = 0.0
    """Logarithm of the windows' mean TPOT, smoothed; 0: none yet."""
    scatter_squared: float = 0.0
    """Mean square of what windows differ from that, smoothed."""
    ran: tuple[Ran, ...] = ()
    """Where those requests were served, by the tokens that were made there."""

    def updated(self, deltas: Iterable[PodDelta]) -> "Tail":
        """With one more window."""
        histogram, seconds, at_s = dict(self.tpot), self.seconds_sum, self.at_s
        ran = {(each.batch_le, each.depth): each.tokens for each in self.ran}
        added = False
        window_s = window_requests = 0.0
        for each in deltas:
            if not each.tpot or each.tpot[-1][1] <= 0:
                continue
            if not added:
                kept = decay(each.to_s - at_s, HALF_LIFE_S) if at_s else 0.0
                histogram = {le: kept * count for le, count in histogram.items()}
                seconds *= kept
                ran = {where: kept * tokens for where, tokens in ran.items()}
                added = True
            for le, count in each.tpot:
                histogram[_finite(le)] = histogram.get(_finite(le), 0.0) + count
            for cell, counts in each.cells.items():
                where = (cell.batch_le, cell.depth)
                ran[where] = ran.get(where, 0.0) + counts.tokens
            seconds += each.engine.tpot_seconds_sum
            window_s += each.engine.tpot_seconds_sum
            window_requests += each.tpot[-1][1]
            at_s = max(at_s, each.to_s)
        if not added or window_s <= 0:
            return self
        level, scatter = self._scattered(log(window_s / window_requests))
        return Tail(
            tpot=tuple(sorted(histogram.items())),
            seconds_sum=seconds,
            at_s=at_s,
            level=level,
            scatter_squared=scatter,
            ran=_kept(ran),
        )

    @property
    def scatter(self) -> float:
        """Standard deviation of the logarithm of TPOT from window to window."""
        return min(MOST_SCATTER_SD, sqrt(self.scatter_squared))

    def _scattered(self, window: float) -> tuple[float, float]:
        if not self.level:
            return window, 0.0
        off = window - self.level
        return (
            self.level + off * LEVEL_WEIGHT,
            self.scatter_squared + (off * off - self.scatter_squared) * SCATTER_WEIGHT,
        )

    @property
    def requests(self) -> float:
        return self.tpot[-1][1] if self.tpot else 0.0

    @property
    def mean_seconds(self) -> float | None:
        return self.seconds_sum / self.requests if self.requests >= LEAST_REQUESTS else None

    @property
    def slow_seconds(self) -> float | None:
        """The 95th percentile of time per output token."""
        mean, spread = self.mean_seconds, self.spread
        if mean is None or spread is None:
            return None
        return mean * exp(_Z95 * spread - spread * spread / 2)

    @property
    def spread(self) -> float | None:
        """Standard deviation of the logarithm over requests, as of a lognormal distribution.

        vLLM's buckets are a factor of 1.3 to 2.5 wide and begin at 10 ms: too coarse to interpolate
        a percentile in. But its sum is exact, and so is the share of requests up to a bound: with
        mean m and share p up to b, b = m·exp(σ·z(p) - σ²/2), which gives σ.
        """
        mean, requests = self.mean_seconds, self.requests
        if mean is None:
            return None
        above = [(le, count / requests) for le, count in self.tpot if mean < le < INFINITE_S]
        if not above:
            return None
        bound, share = min(above, key=lambda each: abs(each[1] - QUANTILE))
        # Of n requests, none beyond a bound says no more than this.
        share = min(share, 1 - 0.5 / requests)
        z = _NORMAL.inv_cdf(max(share, _LEAST_SHARE))
        return z - sqrt(max(0.0, z * z - 2 * log(bound / mean)))

    def slow_over_mean(self) -> float | None:
        """Logarithm of the 95th percentile over the mean."""
        spread = self.spread
        return None if spread is None else max(0.0, _Z95 * spread - spread * spread / 2)


_NORMAL: Final = NormalDist()
_Z95: Final = _NORMAL.inv_cdf(QUANTILE)
_LEAST_SHARE: Final = 0.5
INFINITE_S: Final = 1e9
"""Represents +Inf, which JSON cannot say."""


def _kept(ran: dict[tuple[int, int], float]) -> tuple[Ran, ...]:
    least = LEAST_RAN_SHARE * sum(ran.values())
    return tuple(Ran(*where, ran[where]) for where in sorted(ran) if ran[where] > least)


def _finite(le: float) -> float:
    return INFINITE_S if le == inf else le
