"""Acceptance that falls with an engine's uptime."""

from collections.abc import Sequence
from math import exp

import numpy as np
from numpy.typing import NDArray

from benchmarks.tuner.worlds.events import Decay


def wear(decays: Sequence[tuple[float, Decay]], now_s: float, started_s: float) -> float:
    """Factor on conditional acceptance of an engine that started then, from its uptime."""
    factor = 1.0
    for at_s, decay in decays:
        hours = max(0.0, now_s - max(started_s, at_s)) / 3600
        factor *= max(decay.floor, exp(-decay.per_hour * hours))
    return factor


def worn(
    decays: Sequence[tuple[float, Decay]],
    at_s: NDArray[np.float64],
    started_s: NDArray[np.float64],
) -> NDArray[np.float64]:
    """(T, R): the same at each tick (T) for each replica's engine, by when it started (T, R)."""
    if not decays:
        return np.ones(started_s.shape)
    ages = zip(np.repeat(at_s, started_s.shape[1]), started_s.ravel(), strict=True)
    factors = [wear(decays, now_s, begun_s) for now_s, begun_s in ages]
    return np.array(factors).reshape(started_s.shape)
