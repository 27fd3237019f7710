"""Acceptance that falls with an engine's uptime."""

from collections.abc import Sequence
from math import exp

from fathom_local.tuner_bench.world import Decay


def wear(decays: Sequence[tuple[float, Decay]], now_s: float, started_s: float) -> float:
    """Factor on conditional acceptance of an engine that started then, from its uptime."""
    factor = 1.0
    for at_s, decay in decays:
        hours = max(0.0, now_s - max(started_s, at_s)) / 3600
        factor *= max(decay.floor, exp(-decay.per_hour * hours))
    return factor
