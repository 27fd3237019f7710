"""Expected acceptance length per depth, E[L | k] = 1 + S_1 + … + S_k, with its error."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import zip_longest
from math import log
from math import pow as power
from types import MappingProxyType
from typing import Final

from fathom.measurement.counters import DraftCell, DraftCounts, position_at

_NO_SHIFT = (0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Position:
    """Conditional acceptance at one position."""

    mean: float
    variance: float
    from_previous: float
    """How much of an error at the position before carries over to this one."""


@dataclass(frozen=True)
class Lengths:
    """All depths up to `len(positions)`. They share their positions, so their errors cancel."""

    positions: tuple[Position, ...]
    shifts: Mapping[int, tuple[float, float]] = field(
        default_factory=lambda: MappingProxyType({}), hash=False
    )
    """By depth: what is added to log E[L] of a mix that has settled to the depth, and its
    variance."""

    def at(self, depth: int) -> float:
        """Tokens per step."""
        return self._lengths[depth]

    def overshoot(self, depth: int) -> float:
        """Mean tokens of an answer's last step beyond its end (renewal theory's mean excess)."""
        squares = sum((2 * i + 1) * each for i, each in enumerate(self._survival[: depth + 1]))
        return (squares / self._lengths[depth] - 1) / 2

    def log_ratio(self, to: int, start: int) -> tuple[float, float]:
        """Logarithm of E[L] at `to` over E[L] at `start`, and its variance (delta method)."""
        ratio = log(self._lengths[to] / self._lengths[start])
        by_to, by_start = self._log_gradients[to], self._log_gradients[start]
        variance = carried = 0.0
        for i in reversed(range(max(to, start))):
            position = self.positions[i]
            total = by_to[i] - by_start[i] + carried
            variance += total * total * position.variance
            carried = position.from_previous * total
        to_shift, to_variance = self.shifts.get(to, _NO_SHIFT)
        start_shift, start_variance = self.shifts.get(start, _NO_SHIFT)
        if to != start:
            ratio += to_shift - start_shift
            variance += to_variance + start_variance
        return ratio, variance

    def logit_slope(self, depth: int) -> float:
        """Derivative of log E[L] by a shift of all positions' log-odds: easier or harder text."""
        return self._logit_slopes[depth]

    @cached_property
    def _logit_slopes(self) -> tuple[float, ...]:
        return tuple(
            sum(
                slope * each.mean * (1 - each.mean)
                for slope, each in zip(gradients, self.positions, strict=True)
            )
            for gradients in self._log_gradients
        )

    @cached_property
    def _survival(self) -> tuple[float, ...]:
        survival = [1.0]
        for each in self.positions:
            survival.append(survival[-1] * each.mean)
        return tuple(survival)

    @cached_property
    def _lengths(self) -> tuple[float, ...]:
        lengths = [1.0]
        for each in self._survival[1:]:
            lengths.append(lengths[-1] + each)
        return tuple(lengths)

    @cached_property
    def _log_gradients(self) -> tuple[tuple[float, ...], ...]:
        """Per depth, the derivatives of log E[L] by each position's conditional acceptance.

        Of E[L | k] by a_i it is (S_i + … + S_k) / a_i, for i up to k.
        """
        lengths = self._lengths
        return tuple(
            tuple(
                (lengths[depth] - lengths[i]) / each.mean / lengths[depth] if i < depth else 0.0
                for i, each in enumerate(self.positions)
            )
            for depth in range(len(lengths))
        )


@dataclass(frozen=True, slots=True)
class Trials:
    """Drafts that reached each position, and those accepted there."""

    reached: tuple[float, ...] = ()
    accepted: tuple[float, ...] = ()

    def __add__(self, other: "Trials") -> "Trials":
        return Trials(
            _sum(self.reached, other.reached),
            _sum(self.accepted, other.accepted),
        )

    def scaled(self, factor: float) -> "Trials":
        return Trials(
            tuple([factor * each for each in self.reached]),
            tuple([factor * each for each in self.accepted]),
        )


def _sum(one: tuple[float, ...], two: tuple[float, ...]) -> tuple[float, ...]:
    return tuple([a + b for a, b in zip_longest(one, two, fillvalue=0.0)])


def trials(drafts: Mapping[DraftCell, DraftCounts]) -> Trials:
    """Trials per position: position i only over drafts deeper than i."""
    total = Trials()
    for cell, counts in drafts.items():
        accepted = tuple(position_at(counts.accepted, i) for i in range(cell.depth))
        total += Trials((counts.drafts, *accepted)[: cell.depth], accepted)
    return total


NO_TRIALS: Final = Trials()


def decay(passed_s: float, half_life_s: float) -> float:
    """Share that is kept after so long, by halves: 1 at once, 0.5 after one half-life (seconds).

    Time that ran backwards forgets nothing: clocks of pods differ a little.
    """
    return power(0.5, max(0.0, passed_s) / half_life_s)
