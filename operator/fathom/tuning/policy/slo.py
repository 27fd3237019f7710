"""Goodput: which depths keep the SLO on time per output token (TPOT), at its 95th percentile."""

from dataclasses import dataclass, field
from math import exp
from typing import Final

from fathom.tuning.estimate.tail import Tail
from fathom.tuning.estimate.text_spread import TextSpread
from fathom.tuning.policy.value import Evidence

KEPT_Z: Final = 1.6
"""An SLO must hold in nearly every window, not on average: what counts is this many standard
deviations between windows above the mean."""
LEAVE_ABOVE_SHARE: Final = 0.99
"""A depth is left when its slow requests take more than this share of the SLO even so."""
CHOOSE_BELOW_SHARE: Final = 0.96
"""And gone to only below this share, so that it does not go back and forth."""
STOP_TRYING_ABOVE_SHARE: Final = 0.9
"""Above this share of the SLO, as long as it is kept, nothing is tried any more once two depths
were compared: until then, how much another one would gain is no more than a guess."""


@dataclass(frozen=True, slots=True)
class Slo:
    """The SLO, and how slow requests are at present."""

    seconds: float
    tail: Tail
    text_spread: TextSpread = field(default_factory=TextSpread)

    @property
    def is_missed(self) -> bool:
        """Whether slow requests take longer at present than they should."""
        slow = self.tail.slow_seconds
        return slow is not None and self.loses(slow)

    @property
    def is_known(self) -> bool:
        """Whether it is known how slow slow requests are at present."""
        return self.tail.slow_seconds is not None

    @property
    def is_near(self) -> bool:
        """Whether it is kept, but by little."""
        slow = self.tail.slow_seconds
        return (
            slow is not None
            and slow > STOP_TRYING_ABOVE_SHARE * self.wanted_seconds
            and not self.loses(slow)
        )

    def bears(self, slower: float, share: float) -> bool:
        """Whether the SLO stays kept if slow requests take longer in some of the traffic.

        The percentile of all is taken to move by as much as that of some, times their share. As
        long as nobody knows how slow requests are at present, nothing is borne.

        Args:
            slower: logarithm of how much longer they take there; negative: they are faster.
            share: of the requests.
        """
        slow = self.tail.slow_seconds
        return slow is not None and not self.loses(slow * exp(slower * share))

    def slow_seconds(
        self, evidence: Evidence, bucket: int, depth: int, *, at_most: bool = False
    ) -> float | None:
        """Predicted 95th percentile of TPOT in a bucket at a depth; None: not known.

        Args:
            evidence: what is known of means.
            bucket: of batches.
            depth: drafted tokens.
            at_most: whether as little as possible is taken for known of how much comes from the
                text.
        """
        mean = evidence.tpot_seconds(bucket, depth)
        if mean is None:
            return None
        spread, slope = self.tail.slow_over_mean(), mean_slope(evidence, self.tail)
        # Prefill and waiting in between slow all requests alike, at any depth.
        overhead = self._overhead(evidence)
        if spread is None or slope is None or slope <= 0:
            return mean * overhead * exp(spread or 0.0)
        further = evidence.lengths(bucket).logit_slope(depth) - slope
        steepness = self.text_spread.steepness(slope, spread)
        if at_most:
            least, most = self.text_spread.bounds(slope, spread)
            steepness = most if further > 0 else least
        spread = max(0.0, spread + steepness * further)
        return mean * overhead * exp(spread)

    def allows(self, evidence: Evidence, bucket: int, depth: int) -> bool:
        """Whether a depth keeps the SLO with a margin, as far as is known."""
        slow = self.slow_seconds(evidence, bucket, depth)
        return slow is not None and slow <= CHOOSE_BELOW_SHARE * self.wanted_seconds

    def loses(self, slow_seconds: float) -> bool:
        """Whether a depth with such slow requests must be left."""
        return slow_seconds > LEAVE_ABOVE_SHARE * self.wanted_seconds

    @property
    def wanted_seconds(self) -> float:
        """What the 95th percentile must be on average, so that it holds in nearly every window."""
        return self.seconds * exp(-KEPT_Z * self.tail.scatter)

    def _overhead(self, evidence: Evidence) -> float:
        """Measured mean TPOT over what is predicted of decode steps where those requests ran."""
        measured = self.tail.mean_seconds
        tokens = expected = 0.0
        for each in self.tail.ran:
            seconds = evidence.tpot_seconds(each.batch_le, each.depth)
            if seconds is not None:
                tokens += each.tokens
                expected += each.tokens * seconds
        if measured is None or expected <= 0:
            return 1.0
        return measured * tokens / expected


def mean_slope(evidence: Evidence, tail: Tail) -> float | None:
    """`Lengths.logit_slope` at the depths that the tail's requests had; None: not known."""
    total = sum(each.tokens for each in tail.ran)
    if total <= 0:
        return None
    slopes = (
        each.tokens * evidence.lengths(each.batch_le).logit_slope(each.depth) for each in tail.ran
    )
    return sum(slopes) / total
