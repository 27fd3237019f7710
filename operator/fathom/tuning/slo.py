"""Goodput: which depths keep the SLO on time per output token (TPOT), at its 95th percentile."""

from dataclasses import dataclass, field
from math import exp, log
from typing import Final

from fathom.tuning.buckets import Depths
from fathom.tuning.by_text import ByText
from fathom.tuning.tail import Tail
from fathom.tuning.value import Evidence

KEPT_Z: Final = 1.6
"""An SLO must hold in nearly every window, not on average: what counts is this many standard
deviations between windows above the mean."""
LEAVE: Final = 0.99
"""A depth is left when its slow requests take more than this share of the SLO even so."""
ENTER: Final = 0.96
"""And gone to only below this share, so that it does not go back and forth."""
NEAR: Final = 0.9
"""Above this share of the SLO nothing is tried."""


@dataclass(frozen=True, slots=True)
class Slo:
    """The SLO, and how slow requests are at present."""

    seconds: float
    tail: Tail
    by_text: ByText = field(default_factory=ByText)

    @property
    def is_near(self) -> bool:
        """Whether a probe could miss it."""
        slow = self.tail.slow_seconds
        return slow is not None and NEAR * self.wanted_seconds < slow <= self.seconds

    def slow_seconds(
        self, evidence: Evidence, in_force: Depths, bucket: int, depth: int
    ) -> float | None:
        """Predicted 95th percentile of TPOT in a bucket at a depth; None: not known."""
        mean = evidence.tpot_seconds(bucket, depth)
        if mean is None:
            return None
        spread, slope = self.tail.slow_over_mean(), slope_in_force(evidence, in_force)
        # Prefill and waiting in between slow all requests alike, at any depth.
        overhead = self._overhead(evidence, in_force)
        if spread is None or slope is None or slope <= 0:
            return mean * overhead * exp(spread or 0.0)
        further = evidence.lengths.logit_slope(depth) - slope
        spread = max(0.0, spread + self.by_text.steepness(slope, spread) * further)
        return mean * overhead * exp(spread)

    def allows(self, evidence: Evidence, in_force: Depths, bucket: int, depth: int) -> bool:
        """Whether a depth keeps the SLO with a margin, as far as is known."""
        slow = self.slow_seconds(evidence, in_force, bucket, depth)
        return slow is not None and slow <= ENTER * self.wanted_seconds

    def loses(self, slow_seconds: float) -> bool:
        """Whether a depth with such slow requests must be left."""
        return slow_seconds > LEAVE * self.wanted_seconds

    @property
    def wanted_seconds(self) -> float:
        """What the 95th percentile must be on average, so that it holds in nearly every window."""
        return self.seconds * exp(-KEPT_Z * self.tail.scatter)

    def _overhead(self, evidence: Evidence, in_force: Depths) -> float:
        """Measured mean TPOT over that of decode steps alone."""
        measured = self.tail.mean_seconds
        total = expected = 0.0
        for bucket, share in evidence.traffic.shares().items():
            seconds = (
                evidence.tpot_seconds(bucket, in_force[bucket]) if bucket in in_force else None
            )
            if seconds is not None:
                # Requests are finished where tokens are made.
                total += share
                expected += share * log(seconds)
        if measured is None or total <= 0:
            return 1.0
        return max(1.0, measured / exp(expected / total))


def slope_in_force(evidence: Evidence, in_force: Depths) -> float | None:
    """`Lengths.logit_slope` at the depths in force, weighted by load; None without load."""
    shares = evidence.traffic.shares()
    total = sum(share for bucket, share in shares.items() if bucket in in_force)
    if total <= 0:
        return None
    slope = evidence.lengths.logit_slope
    return sum(s * slope(in_force[b]) for b, s in shares.items() if b in in_force) / total
