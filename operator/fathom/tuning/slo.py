"""Goodput: which depths keep the SLO on time per output token (TPOT), at its 95th percentile."""

from dataclasses import dataclass
from math import exp, log
from typing import Final

from fathom.tuning.buckets import Depths
from fathom.tuning.tail import Tail
from fathom.tuning.value import Evidence

KEPT_Z: Final = 1.3
"""An SLO must hold in nearly every window, not on average: what counts is this many standard
deviations between windows above the mean."""
LEAVE: Final = 0.99
"""A depth is left when its slow requests take more than this share of the SLO even so."""
BY_TEXT: Final = 0.5
"""Share of the spread between requests that comes from how easy their text is to draft, and so
grows with depth; the rest (waiting, prompts of neighbours) does not."""
ENTER: Final = 0.96
"""And gone to only below this share, so that it does not go back and forth."""
NEAR: Final = 0.9
"""Above this share of the SLO nothing is tried."""


@dataclass(frozen=True, slots=True)
class Slo:
    """The SLO, and how slow requests are at present."""

    seconds: float
    tail: Tail

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
        spread, slope = self.tail.slow_over_mean(), self._slope(evidence, in_force)
        # Prefill and waiting in between slow all requests alike, at any depth.
        overhead = self._overhead(evidence, in_force)
        if spread is None or slope is None or slope <= 0:
            return mean * overhead * exp(spread or 0.0)
        scale = evidence.lengths.logit_slope(depth) / slope
        return mean * overhead * exp(spread * (1 - BY_TEXT + BY_TEXT * scale))

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

    def _slope(self, evidence: Evidence, in_force: Depths) -> float | None:
        shares = evidence.traffic.shares()
        total = sum(share for bucket, share in shares.items() if bucket in in_force)
        if total <= 0:
            return None
        slope = evidence.lengths.logit_slope
        return sum(s * slope(in_force[b]) for b, s in shares.items() if b in in_force) / total

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
