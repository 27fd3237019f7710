"""How much of the spread between requests comes from their text: learned from the depths that ran.

Where requests differ by how easy they are to draft, the spread of their time per output token grows
with `Lengths.logit_slope`; where they differ by their prompts or contexts, it does not care. So the
spread is taken to be a line over that slope, fitted to all windows of the last hours by least
squares, with a prior for how steep it is.
"""

from dataclasses import dataclass
from typing import Final

from fathom.tuning.estimate.acceptance_length import decay

HALF_LIFE_S: Final = 12 * 3600.0
"""Half-life of a window in what is learned: depths change seldom, and two must have run."""
PRIOR_SHARE: Final = 0.1
"""Share of the spread between requests that is taken to be their text's, until two depths ran."""
PRIOR_WINDOWS: Final = 20.0
"""That belief is worth so many windows …"""
PRIOR_RANGE_SHARE: Final = 0.3
"""… whose slopes lie so far apart, relative to the slope."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextSpread:
    """Weighted moments of spread and slope over windows."""

    weight: float = 0.0
    slope: float = 0.0
    spread: float = 0.0
    squares: float = 0.0
    """Sum of squared deviations of the slope."""
    products: float = 0.0
    """Sum of products of the deviations of both."""
    at_s: float = 0.0

    def updated(self, slope: float, spread: float, at_s: float) -> "TextSpread":
        """With one more window.

        Args:
            slope: derivative of log E[L] by a shift of all log-odds, at the depths in force.
            spread: logarithm of the 95th percentile of TPOT over its mean.
            at_s: the window's end (Unix seconds).
        """
        kept = decay(at_s - self.at_s, HALF_LIFE_S) if self.at_s else 0.0
        weight = kept * self.weight + 1
        off, by = slope - self.slope, spread - self.spread
        now = self.slope + off / weight
        return TextSpread(
            weight=weight,
            slope=now,
            spread=self.spread + by / weight,
            squares=kept * self.squares + off * (slope - now),
            products=kept * self.products + by * (slope - now),
            at_s=at_s,
        )

    def steepness(self, slope: float, spread: float) -> float:
        """Growth of the spread per unit of slope, at a present slope and spread."""
        if slope <= 0:
            return 0.0
        most = spread / slope
        prior = _prior(slope)
        fitted = (self.products + prior * PRIOR_SHARE * most) / (self.squares + prior)
        return min(most, max(0.0, fitted))

    def bounds(self, slope: float, spread: float) -> tuple[float, float]:
        """Least and most that the steepness may be: as far as it is not learned, none or all."""
        if slope <= 0:
            return 0.0, 0.0
        fitted = self.steepness(slope, spread)
        learnt = self.squares / (self.squares + _prior(slope))
        return learnt * fitted, learnt * fitted + (1 - learnt) * spread / slope


def _prior(slope: float) -> float:
    """What the prior is worth, as squared deviations of the slope."""
    return PRIOR_WINDOWS * (PRIOR_RANGE_SHARE * slope) ** 2
