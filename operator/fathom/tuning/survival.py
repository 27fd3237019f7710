"""Survival: a property of the traffic, so it is remembered for minutes.

Estimated as conditional acceptance, position by position: P(draft i accepted | all before it were),
over drafts that were deep enough. Unlike plain survival this may pool drafts of different depths
and times. Where nothing has been drafted so deep, a position is expected to accept a little less
than the one before it, with a wide error; that prior fades as trials arrive.

When the newest windows differ from what came before by more than chance, the traffic has changed:
what came before is dropped, so that a new class of requests is answered within one window.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import zip_longest
from math import log, sqrt
from typing import Final

from fathom.core.measurement import DraftCell, DraftCounts, position_at

HALF_LIFE_S: Final = 600.0
DESIGN_EFFECT: Final = 10.0
"""Drafts of one request resemble each other: this many count as one independent trial."""
FADE: Final = 0.98
"""Expected ratio of one position's conditional acceptance to that of the position before."""
PRIOR_FIRST: Final = (0.6, 2.0)
"""Mean and weight, in independent trials, of what is believed of the first position."""
PRIOR_TRIALS: Final = 10.0
"""Weight, in independent trials, of the belief that a position resembles the one before."""
CHANGE_Z: Final = 4.0
CHANGE_LEAST: Final = 0.03
"""Differences in acceptance below this are no change worth forgetting for."""
TESTED_POSITIONS: Final = 3
FRESH_WINDOWS: Final = 3
FRESH_DRAFTS: Final = 200.0
"""Windows with fewer drafts are joined to the next: a test on a handful has no power."""


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
            tuple(factor * each for each in self.reached),
            tuple(factor * each for each in self.accepted),
        )


def _sum(one: tuple[float, ...], two: tuple[float, ...]) -> tuple[float, ...]:
    return tuple(a + b for a, b in zip_longest(one, two, fillvalue=0.0))


def trials(drafts: Mapping[DraftCell, DraftCounts]) -> Trials:
    """Trials per position: position i only over drafts deeper than i."""
    total = Trials()
    for cell, counts in drafts.items():
        accepted = tuple(position_at(counts.accepted, i) for i in range(cell.depth))
        total += Trials((counts.drafts, *accepted)[: cell.depth], accepted)
    return total


@dataclass(frozen=True, slots=True)
class _Position:
    mean: float
    variance: float
    from_previous: float
    """How much of an error at the position before carries over to this one."""


@dataclass(frozen=True, slots=True)
class Survival:
    """What is known of the present traffic."""

    horizon: Trials = Trials()
    """Older windows, discounted."""
    fresh: tuple[Trials, ...] = ()
    """The newest windows, oldest first, not yet discounted."""
    at_s: float = 0.0
    epoch: int = 0
    """Counts the changes of traffic that were noticed."""

    def updated(self, window: Trials, at_s: float) -> "Survival":
        """With one more window; tells a change from chance."""
        if not any(window.reached):
            return self
        decay = 0.5 ** (max(0.0, at_s - self.at_s) / HALF_LIFE_S) if self.at_s else 1.0
        horizon = self.horizon.scaled(decay)
        fresh = self.fresh
        if fresh and fresh[-1].reached[0] < FRESH_DRAFTS:
            fresh = (*fresh[:-1], fresh[-1] + window)
        else:
            fresh = (*fresh, window)
        if len(fresh) > FRESH_WINDOWS:
            horizon += fresh[0]
            fresh = fresh[1:]
        for newest in range(1, len(fresh) + 1):
            recent = sum(fresh[-newest:], Trials())
            older = sum(fresh[:-newest], horizon)
            if _differ(recent, older):
                return Survival(Trials(), fresh[-newest:], at_s, self.epoch + 1)
        return replace(self, horizon=horizon, fresh=fresh, at_s=at_s)

    def expected_length(self, depth: int) -> float:
        """Tokens per step at a depth: 1 + Σ survival."""
        return _length([each.mean for each in self._positions(depth)], depth)

    def log_length_ratio(self, to: int, start: int) -> tuple[float, float]:
        """Logarithm of E[L] at `to` over E[L] at `start`, and its variance.

        Both lengths share their positions, so most of the error cancels: hence one function.
        """
        positions = self._positions(max(to, start))
        means = [each.mean for each in positions]
        length_to, length_start = _length(means, to), _length(means, start)
        variance = carried = 0.0
        for i in reversed(range(len(positions))):
            direct = _slope(means, i, to) / length_to - _slope(means, i, start) / length_start
            total = direct + carried
            variance += total * total * positions[i].variance
            carried = positions[i].from_previous * total
        return log(length_to / length_start), variance

    def is_measured(self, depth: int) -> bool:
        """Whether drafts this deep were made lately, rather than extrapolated."""
        reached = self._pooled().reached
        return depth <= len(reached) and all(
            # Few drafts reach a deep position where acceptance is low; the drafts were made.
            position_at(reached, i) > 0
            for i in range(depth)
        )

    def _pooled(self) -> Trials:
        return sum(self.fresh, self.horizon)

    def _positions(self, depth: int) -> list[_Position]:
        pooled = self._pooled()
        result: list[_Position] = []
        expected, weight, carry = *PRIOR_FIRST, 0.0
        for i in range(depth):
            n = position_at(pooled.reached, i) / DESIGN_EFFECT
            accepted = position_at(pooled.accepted, i) / DESIGN_EFFECT
            mean = (accepted + weight * expected) / (n + weight)
            mean = min(0.9995, max(0.0005, mean))
            result.append(
                _Position(mean, mean * (1 - mean) / (n + weight + 1), carry * weight / (n + weight))
            )
            expected, weight, carry = FADE * mean, PRIOR_TRIALS, FADE
        return result


def _length(means: list[float], depth: int) -> float:
    length = survival = 1.0
    for mean in means[:depth]:
        survival *= mean
        length += survival
    return length


def _slope(means: list[float], position: int, depth: int) -> float:
    """Derivative of E[L] at `depth` by the conditional acceptance at `position`."""
    if position >= depth:
        return 0.0
    before = 1.0
    for mean in means[:position]:
        before *= mean
    tail = survival = 1.0
    for mean in means[position + 1 : depth]:
        survival *= mean
        tail += survival
    return before * tail


def _differ(recent: Trials, older: Trials) -> bool:
    for i in range(TESTED_POSITIONS):
        n, m = position_at(recent.reached, i), position_at(older.reached, i)
        if n <= 0 or m <= 0:
            return False
        a, b = position_at(recent.accepted, i), position_at(older.accepted, i)
        pooled = (a + b + 1) / (n + m + 2)
        error = sqrt(DESIGN_EFFECT * pooled * (1 - pooled) * (1 / n + 1 / m))
        difference = abs(a / n - b / m)
        if difference > CHANGE_LEAST and difference > CHANGE_Z * error:
            return True
    return False
