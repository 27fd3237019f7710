"""From slices to rates, and from rates to ratios with intervals. Pure.

Ratios within a phase come from pairs of slices of the same round (`paired_ratio`). Over the whole
trace an arm's tokens are the sum of its mean rates, each times the length of its phase; their
standard errors add up in squares, and the ratio of two such sums has, by the delta method on its
logarithm, the relative error √(r₁² + r₂²).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from scipy import stats

from local_cluster.demo.compare import CONFIDENCE, Ratio, paired_ratio

_FEWEST = 2


@dataclass(frozen=True, slots=True)
class Slice:
    """What one arm did in one turn."""

    round: int
    steady: bool
    seconds: float
    tokens: float

    @property
    def rate(self) -> float:
        """Tokens per second."""
        return self.tokens / self.seconds


@dataclass(frozen=True, slots=True)
class Held:
    """A depth that the tuner's schedule asks for from some time on."""

    at_s: float
    """Seconds of the tuner's own time since the phase began."""
    depth: int


@dataclass(frozen=True, slots=True)
class Total:
    """Tokens, with their standard error."""

    tokens: float
    error: float


def mean_rate(slices: Sequence[Slice]) -> float:
    """Tokens per second over all of them."""
    return sum(each.tokens for each in slices) / sum(each.seconds for each in slices)


def steady(slices: Sequence[Slice]) -> tuple[Slice, ...]:
    """Those of the steady part."""
    return tuple(each for each in slices if each.steady)


def steady_ratio(ours: Sequence[Slice], theirs: Sequence[Slice]) -> Ratio:
    """Ours over theirs in the steady part, round by round.

    Raises:
        ValueError: there are fewer than two rounds that both took part in.
    """
    our_rates = {each.round: each.rate for each in steady(ours)}
    their_rates = {each.round: each.rate for each in steady(theirs)}
    rounds = sorted(our_rates.keys() & their_rates.keys())
    return paired_ratio(
        [our_rates[number] for number in rounds], [their_rates[number] for number in rounds]
    )


def total(slices: Sequence[Slice], seconds: float) -> Total:
    """Tokens that an arm with these slices makes in a phase of so many seconds.

    Raises:
        ValueError: there are fewer than two slices, which have no spread.
    """
    if len(slices) < _FEWEST:
        raise ValueError(f"need two slices or more: {len(slices)}")
    error = float(stats.sem([each.rate for each in slices]))
    return Total(mean_rate(slices) * seconds, error * seconds)


def together(totals: Sequence[Total]) -> Total:
    """The sum over phases, whose errors are independent."""
    return Total(sum(each.tokens for each in totals), math.hypot(*(each.error for each in totals)))


def total_ratio(ours: Total, theirs: Total, slices: int) -> Ratio:
    """Ours over theirs with its 95 % interval.

    Args:
        ours: above the line.
        theirs: below it.
        slices: how many of ours it rests on.
    """
    relative = math.hypot(ours.error / ours.tokens, theirs.error / theirs.tokens)
    half = float(stats.norm.ppf((1 + CONFIDENCE) / 2)) * relative
    ratio = ours.tokens / theirs.tokens
    return Ratio(ratio, ratio * math.exp(-half), ratio * math.exp(half), slices)


def seconds_to_reach(rate: float, held: Sequence[Held], rates: Mapping[int, float]) -> float | None:
    """When the tuner first held a depth that is worth a rate.

    By depth and not by the tuner's own tokens: a few seconds' worth of those is too noisy to find
    a moment with. What a probe runs at does not count as held.

    Args:
        rate: tokens per second.
        held: ascending in time.
        rates: tokens per second by static depth, in the same phase.

    Returns:
        Seconds of the tuner's own time; None: not in this phase.
    """
    return next((each.at_s for each in held if rates[each.depth] >= rate), None)
