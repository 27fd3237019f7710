"""Yields: tokens per request and step where drafts are cut before they are verified. Pure.

With vLLM's adaptive verification a step verifies fewer drafts than it was given, and nobody is told
how many. So acceptance by position is not known, and what a depth yields depends on the batch,
since larger ones are cut shorter. What stays exact are the tokens that came of a step. They are
counted in steps that only decode, by batch bucket and depth, and remembered for minutes, as
`survival` is, whose questions these answer.

Each cell tells of its own depth alone. What a depth would yield that was not tried is told from the
nearest one that was, as if each draft were accepted alike: the less certain, the further it is, so
that it takes a probe to know.

A request's tokens in one step lie between 1 and depth + 1, so with mean y their variance is at most
(y - 1)·(depth + 1 - y) (Bhatia and Davis, A better bound on the variance, 2000); steps of one
request resemble each other, as drafts do.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from math import exp, log, log2, sqrt
from typing import Final

from fathom.measurement.counters import Cell, CellCounts, StepKind
from fathom.tuning.estimate.acceptance_by_position import (
    DESIGN_EFFECT,
    HALF_LIFE_S,
    SLOW_HALF_LIFE_S,
    TURN_S,
)
from fathom.tuning.estimate.acceptance_changes import CHANGE_Z
from fathom.tuning.estimate.acceptance_length import Position, decay

WINDOW_SD: Final = 0.01
"""Relative error of a yield that more steps do not reduce: batches within one bucket are cut to
different lengths."""
UNNOTICED_SD: Final = 0.04
"""Change of a yield's logarithm that may have gone unnoticed since it was measured."""
APART_SD: Final = 0.25
"""Error of the logarithm of a yield per logarithm of query length (depth and one) from where it was
measured."""
BUCKET_SD: Final = 0.1
"""The same per factor of two in batch."""
UNKNOWN_PRIOR: Final = (0.6, 0.3)
"""Acceptance, and the error of a yield's logarithm, before anything was measured."""
LEAST_DOUBT_TOKENS: Final = 0.001
"""No yield is nearer to its bounds, in tokens: there its variance would be 0."""
ACCEPTANCE_ERROR: Final = 1e-4
"""How exactly the acceptance that gives a yield is found."""
MOST_CELLS: Final = 288
"""Seven depths in each of the 40 buckets up to batch 2,048 are 280."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Yield:
    """Yield of one batch bucket and depth; older windows count for less."""

    batch_le: int
    depth: int
    requests: float
    """Requests times steps."""
    tokens: float
    at_s: float
    """End of the last window (Unix seconds)."""

    @property
    def mean(self) -> float:
        """Tokens per request and step."""
        return min(
            self.depth + 1 - LEAST_DOUBT_TOKENS,
            max(1 + LEAST_DOUBT_TOKENS, self.tokens / self.requests),
        )

    def aged(self, now_s: float) -> "Yield":
        """As it counts now."""
        kept = decay(now_s - self.at_s, HALF_LIFE_S)
        return replace(self, requests=kept * self.requests, tokens=kept * self.tokens)

    def variance(self, now_s: float) -> float:
        """Variance of the logarithm of the mean, as that of the traffic of now.

        It may have turned a little since it was measured, without being noticed.
        """
        spread = (self.mean - 1) * (self.depth + 1 - self.mean) / self.mean**2
        passed = 1 - decay(now_s - self.at_s, HALF_LIFE_S)
        return (
            WINDOW_SD**2
            + UNNOTICED_SD**2 * passed
            + DESIGN_EFFECT * spread / max(1.0, self.requests)
        )

    def acceptance(self) -> float:
        """Acceptance of each draft, if all were accepted alike: 1 + a + … + aᵈ is the mean."""
        low, high = 0.0, 1.0
        while high - low > ACCEPTANCE_ERROR:
            middle = (low + high) / 2
            low, high = (middle, high) if _length(middle, self.depth) < self.mean else (low, middle)
        return (low + high) / 2


def _length(acceptance: float, depth: int) -> float:
    length = 1.0
    for _ in range(depth):
        length = 1 + acceptance * length
    return length


@dataclass(frozen=True, kw_only=True)
class CutLengths:
    """What each depth yields in one bucket, as far as it was measured: see `Lengths`."""

    measured: Mapping[int, Yield]
    """By depth; of the nearest bucket of which any is known."""
    apart: float
    """Factors of two in batch between that bucket and the one in question."""
    now_s: float
    positions: tuple[Position, ...] = ()
    """None: acceptance by position is not known."""

    def at(self, depth: int) -> float:
        """Tokens per step."""
        return exp(self._log_at(depth))

    def log_ratio(self, to: int, start: int) -> tuple[float, float]:
        """Logarithm of the yield at `to` over that at `start`, and its variance."""
        if to == start:
            return 0.0, 0.0
        variance = (self.apart * BUCKET_SD) ** 2 * abs(log((to + 1) / (start + 1)))
        anchors = {depth: self._anchor(depth) for depth in (to, start)}
        for depth, anchor in anchors.items():
            variance += self._apart_variance(depth, anchor)
        # What both rest on cancels.
        for anchor in {*anchors.values()} if anchors[to] is not anchors[start] else ():
            variance += anchor.variance(self.now_s) if anchor is not None else 0.0
        return self._log_at(to) - self._log_at(start), variance

    def logit_slope(self, depth: int) -> float:
        """Derivative of the yield's logarithm by a shift of all drafts' log-odds."""
        a = self._acceptance(self._anchor(depth))
        slope = sum(i * a ** (i - 1) for i in range(1, depth + 1))
        return slope * a * (1 - a) / _length(a, depth)

    def _anchor(self, depth: int) -> Yield | None:
        """The nearest depth that was measured; None: none was, or of depth 0 all is known."""
        if not depth or not self.measured:
            return None
        nearest = min(self.measured, key=lambda each: (abs(log((each + 1) / (depth + 1))), each))
        return self.measured[nearest]

    def _apart_variance(self, depth: int, anchor: Yield | None) -> float:
        if not depth:
            return 0.0
        if anchor is None:
            return UNKNOWN_PRIOR[1] ** 2
        return (APART_SD * log((depth + 1) / (anchor.depth + 1))) ** 2

    def _log_at(self, depth: int) -> float:
        anchor = self._anchor(depth)
        if anchor is not None and anchor.depth == depth:
            return log(anchor.mean)
        return log(_length(self._acceptance(anchor), depth))

    @cached_property
    def _acceptances(self) -> dict[int, float]:
        return {depth: each.acceptance() for depth, each in self.measured.items()}

    def _acceptance(self, anchor: Yield | None) -> float:
        return UNKNOWN_PRIOR[0] if anchor is None else self._acceptances[anchor.depth]


@dataclass(frozen=True, slots=True, kw_only=True)
class Yields:
    """What is known of the present traffic, where drafts are cut."""

    cells: tuple[Yield, ...] = ()
    """Yields of depths above 0."""
    at_s: float = 0.0
    """When drafts were last seen (Unix seconds)."""
    epoch: int = 0
    """Counts the changes of traffic that were noticed."""
    turns: float = 0.0
    """The same, discounted over hours …"""
    watched_s: float = 0.0
    """… and the seconds in which they would have been noticed: of a longer gap, a half-life."""

    def updated(self, window: Mapping[Cell, CellCounts], at_s: float) -> "Yields":
        """With one more window; tells a change of traffic from chance.

        Args:
            window: what all pods counted.
            at_s: its end (Unix seconds).
        """
        seen = tuple(_seen(window, at_s))
        if not seen:
            return self
        known = {(each.batch_le, each.depth): each.aged(at_s) for each in self.cells}
        changed = any(
            _differ(each, known[each.batch_le, each.depth])
            for each in seen
            if (each.batch_le, each.depth) in known
        )
        seconds = max(0.0, at_s - self.at_s) if self.at_s else 0.0
        kept = decay(seconds, SLOW_HALF_LIFE_S)
        return Yields(
            cells=_newest((() if changed else self.cells), seen, at_s),
            at_s=at_s,
            epoch=self.epoch + changed,
            turns=kept * self.turns + changed,
            watched_s=kept * self.watched_s + min(seconds, HALF_LIFE_S),
        )

    @property
    def turns_per_s(self) -> float:
        """How often traffic turns: as of a Poisson process, with TURN_S watched beforehand."""
        return (1 + self.turns) / (TURN_S + self.watched_s)

    def normal(self, now_s: float) -> "Yields":
        """As if the present traffic were what is normal here, of which nothing more is known."""
        return replace(self, at_s=now_s)

    def lengths(self, bucket: int, now_s: float) -> CutLengths:
        """E[L] at each depth in a bucket, as it is believed now."""
        by_bucket = groupby(self.cells, key=lambda each: each.batch_le)
        measured = {at: {each.depth: each.aged(now_s) for each in cells} for at, cells in by_bucket}
        if not measured:
            return CutLengths(measured={}, apart=0.0, now_s=now_s)
        nearest = min(measured, key=lambda at: (abs(log2(at / bucket)), at))
        return CutLengths(
            measured=measured[nearest], apart=abs(log2(nearest / bucket)), now_s=now_s
        )

    def is_drafted(self, bucket: int, depth: int) -> bool:
        """Whether so many drafts were made in a bucket lately."""
        return not depth or any((c.batch_le, c.depth) == (bucket, depth) for c in self.cells)


def _seen(window: Mapping[Cell, CellCounts], at_s: float) -> Iterable[Yield]:
    for cell, counts in window.items():
        if cell.step is StepKind.DECODE and cell.depth and counts.scheduled_requests > 0:
            yield Yield(
                batch_le=cell.batch_le,
                depth=cell.depth,
                requests=counts.scheduled_requests,
                tokens=counts.tokens,
                at_s=at_s,
            )


def _differ(new: Yield, old: Yield) -> bool:
    error = sqrt(new.variance(new.at_s) + old.variance(new.at_s))
    return abs(log(new.mean / old.mean)) > CHANGE_Z * error


def _newest(old: Iterable[Yield], new: Iterable[Yield], at_s: float) -> tuple[Yield, ...]:
    """Both, what was measured last if there are too many; ordered by bucket and depth."""
    cells = {(each.batch_le, each.depth): each for each in old}
    for each in new:
        before = cells.get((each.batch_le, each.depth))
        if before is not None:
            aged = before.aged(at_s)
            each = replace(  # noqa: PLW2901
                each, requests=aged.requests + each.requests, tokens=aged.tokens + each.tokens
            )
        cells[each.batch_le, each.depth] = each
    kept = sorted(cells.values(), key=lambda each: -each.at_s)[:MOST_CELLS]
    return tuple(sorted(kept, key=lambda each: (each.batch_le, each.depth)))
