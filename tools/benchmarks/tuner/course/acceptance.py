"""Acceptance in a world: survival by class, and how tokens per step differ between requests."""

from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from benchmarks.tuner.worlds.parts import DEEPEST, ClassPart

Floats = NDArray[np.float64]
REQUEST_POINTS: Final = 64
"""Into how many equal parts the requests of a class are cut. With 8 the 95th percentile was the
middle of the last part, the 93.75th, and moved in steps that no engine's histogram shows."""


def survival(part: ClassPart) -> Floats:
    """P(the first i drafts are accepted), i = 1 … DEEPEST.

    From published acceptance lengths L by differences: S_i = L_i - L_{i-1}, with L_0 = 1. Where
    rounding makes a difference larger than the one before, the one before holds.
    """
    if part.length:
        steps = np.diff(np.array((1.0, *part.length)))
        known = np.minimum.accumulate(np.maximum(steps, 0.0))[:DEEPEST]
        ratio = known[-1] / known[-2] if len(known) > 1 and known[-2] > 0 else 0.9
        rest = known[-1] * ratio ** np.arange(1, DEEPEST + 1 - len(known))
        return np.concatenate([known, rest])
    conditional = np.full(DEEPEST, part.acceptance[-1])
    given = np.array(part.acceptance[:DEEPEST])
    conditional[: len(given)] = given
    return np.cumprod(conditional)


def request_factors(tail: float, points: int = REQUEST_POINTS) -> Floats:
    """Quantile midpoints of a lognormal of mean 1: how far requests are from their class's mean."""
    quantiles = (np.arange(points) + 0.5) / points
    factors = np.exp(tail * ndtri(quantiles))
    return np.asarray(factors / factors.mean(), dtype=float)
