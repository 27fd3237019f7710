"""How much of what was counted earlier still counts."""

from math import pow as power


def decay(passed_s: float, half_life_s: float) -> float:
    """Share that is kept after so long, by halves: 1 at once, 0.5 after one half-life (seconds).

    Time that ran backwards forgets nothing: clocks of pods differ a little.
    """
    return power(0.5, max(0.0, passed_s) / half_life_s)
