"""Step times as they are believed at one moment: measured, else predicted.

A depth that was not measured is predicted: linear in depth, with a prior for the slope that comes
from the nearest bucket that knows its own, and with an error that says how far this can be trusted:
what two measured depths differ by may all lie in one step between them, where batch times depth
passes a captured graph.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from math import exp, hypot, log, log2, sqrt
from types import MappingProxyType
from typing import Final

from fathom.measurement.counters import StepKind
from fathom.tuning.estimate.step_time import BATCH_SD, CellTime, StepTimes

MEASURED_SD: Final = 0.1
"""A cell whose error is larger counts as predicted."""
SLOPE_PRIOR: Final = (0.08, 0.06)
"""What one more token costs of a step at depth 0, and the error of that, before anything is
known."""
COMPUTED_SD: Final = 0.25
"""Relative error of taking a draft for as dear as a token of a prompt, in a step with prompts."""
SLOPE_BORROWED_SD: Final = 0.02
"""Error per factor of two in batch when another bucket's slope is borrowed."""
CURVATURE_SD: Final = 0.02
"""Error per token of distance to the nearest measured depth."""
MOST_CURVATURE_SD: Final = 0.1
"""The same, learned, at most."""
NO_DRAFT_SD: Final = 0.1
"""Error of predicting depth 0, which drafts nothing at all, from the others, or the reverse."""
BORROWED_SD: Final = 0.1
"""Error per factor of two in batch when a bucket has nothing of its own."""
LEAST_VARIANCE: Final = 1e-6
"""Variance of a cell on a line, relative to its square: no measurement beats a thousandth."""
LEAST_BASE_SHARE: Final = 0.2
"""Step time at depth 0, relative to the middle of what was measured, at least: no draft costs more
than four fifths of a step …"""
LEAST_TIME_SHARE: Final = 0.05
"""… and the step time at any depth."""

_Row = tuple[int, StepKind]
"""A bucket's steps of one kind, at all depths."""
_NOWHERE: Final[Mapping[int, float]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class StepTime:
    """An estimate of the logarithm of one step's seconds."""

    log_seconds: float
    variance: float
    measured: bool


class StepTable:
    """The step times as they are believed at one moment, each looked up once."""

    def __init__(
        self,
        times: StepTimes,
        now_s: float,
        log_batches: Mapping[int, float] = _NOWHERE,
        *,
        price: float = 0.0,
    ) -> None:
        """Look at a table.

        Args:
            times: the table.
            now_s: Unix seconds.
            log_batches: logarithm to base 2 of the present mean batch of each bucket under load.
            price: seconds of a prompt token, which mixed steps are told without.
        """
        self._now_s = now_s
        self._price = price
        self.prompts_s = price * times.prompt_tokens
        """What the prompts of a mixed step take."""
        self._log_batches = log_batches
        self._cells = dict[tuple[int, int, StepKind], CellTime]()
        measured: dict[_Row, list[CellTime]] = {}
        for whole in times.cells:
            mixed = whole.step is StepKind.MIXED
            each = whole.longer(-self.prompts_s) if mixed else whole
            self._cells[each.batch_le, each.depth, each.step] = each
            # What counts is the error of the whole step, of which prompts may be most.
            if whole.variance_at(now_s) <= MEASURED_SD**2:
                measured.setdefault((each.batch_le, each.step), []).append(each)
        self._measured = {
            row: tuple(sorted(cells, key=lambda cell: cell.depth))
            for row, cells in measured.items()
        }
        self._estimates: dict[tuple[int, int, StepKind], StepTime | None] = {}
        self._curvatures: dict[_Row, float] = {}
        self._slopes: dict[_Row, tuple[float, float]] = {}

    def at(self, batch_le: int, depth: int, step: StepKind) -> CellTime | None:
        """The cell itself, if it was ever measured."""
        return self._cells.get((batch_le, depth, step))

    def measured_depths(self, batch_le: int, step: StepKind) -> tuple[CellTime, ...]:
        """The cells of a bucket whose error is small, by depth."""
        return self._measured.get((batch_le, step), ())

    def estimate(self, batch_le: int, depth: int, step: StepKind) -> StepTime | None:
        """Step time of a cell: measured, else predicted.

        Returns:
            None when no bucket at all has been measured with steps of this kind.
        """
        key = (batch_le, depth, step)
        if key not in self._estimates:
            self._estimates[key] = self._estimate(batch_le, depth, step)
        return self._estimates[key]

    def compared_elsewhere(self, batch_le: int, step: StepKind) -> bool:
        """Whether another bucket knows what a token costs."""
        return self._nearest(batch_le, step, least=2) is not None

    def _estimate(self, batch_le: int, depth: int, step: StepKind) -> StepTime | None:
        known = self._measured.get((batch_le, step), ())
        cell = next((each for each in known if each.depth == depth), None)
        if cell is not None:
            variance = cell.variance_at(self._now_s)
            elsewhere = self._log_batches.get(batch_le, cell.log_batch) - cell.log_batch
            variance += (BATCH_SD * elsewhere) ** 2
            return StepTime(cell.log_seconds, variance, measured=True)
        slope = self._slope_prior(batch_le, step)
        if (batch_le, step) in self._measured:
            return self._predicted((batch_le, step), depth, slope)
        other = self._nearest(batch_le, step, least=1)
        if other is None:
            return None
        borrowed = self._predicted((other, step), depth, slope)
        error = BORROWED_SD * abs(log2(batch_le / other))
        return replace(borrowed, variance=borrowed.variance + error**2)

    def _predicted(self, row: _Row, depth: int, slope: tuple[float, float]) -> StepTime:
        cells = self._measured[row]
        curvature = self._curvature(row, slope)
        line = _Line.fit(cells, slope, self._now_s, _Near(depth, curvature))
        relative, variance = line.at(depth)
        distance = min(abs(depth - cell.depth) for cell in cells)
        off = max(curvature * distance, _cliff_sd(cells, depth))
        variance = variance / relative**2 + off**2
        if depth == 0 or any(cell.depth == 0 for cell in cells):
            variance += NO_DRAFT_SD**2
        return StepTime(log(line.scale * relative), variance, measured=False)

    def _curvature(self, row: _Row, slope: tuple[float, float]) -> float:
        """How far depths of a bucket lie off a line, per token: learned where three are known."""
        if row not in self._curvatures:
            misfit = _Line.fit(self._measured[row], slope, self._now_s).misfit
            self._curvatures[row] = min(MOST_CURVATURE_SD, hypot(CURVATURE_SD, misfit))
        return self._curvatures[row]

    def _nearest(self, batch_le: int, step: StepKind, *, least: int) -> int | None:
        """The nearest other bucket in which at least so many depths were measured."""
        return min(
            (
                bucket
                for (bucket, kind), cells in self._measured.items()
                if kind is step and bucket != batch_le and len(cells) >= least
            ),
            key=lambda bucket: (abs(log2(bucket / batch_le)), bucket),
            default=None,
        )

    def _slope_prior(self, batch_le: int, step: StepKind) -> tuple[float, float]:
        row = (batch_le, step)
        if row not in self._slopes:
            self._slopes[row] = self._borrowed_slope(batch_le, step)
        return self._slopes[row]

    def _borrowed_slope(self, batch_le: int, step: StepKind) -> tuple[float, float]:
        other = self._nearest(batch_le, step, least=2)
        if other is None:
            return self._computed_slope(batch_le, step)
        prior = self._computed_slope(other, step)
        line = _Line.fit(self.measured_depths(other, step), prior, self._now_s)
        slope, sd = line.slope_at_zero()
        return slope, hypot(sd, SLOPE_BORROWED_SD * log2(batch_le / other))

    def _computed_slope(self, batch_le: int, step: StepKind) -> tuple[float, float]:
        """Before a second depth is measured. Steps with prompts compute for longer than they read.

        So there a draft of each request costs what a token of a prompt does, besides its drafting.
        """
        mean, sd = SLOPE_PRIOR
        cells = self._measured.get((batch_le, step), ())
        if step is StepKind.DECODE or not cells:
            return mean, sd
        seconds, drafts_s = exp(cells[0].log_seconds), self._price * 2 ** cells[0].log_batch
        base = max(LEAST_BASE_SHARE * seconds, seconds - cells[0].depth * drafts_s)
        return mean + drafts_s / base, sd + COMPUTED_SD * drafts_s / base


def _cliff_sd(cells: Iterable[CellTime], depth: int) -> float:
    """How far a depth between two measured ones may lie off the line, if that is one cliff.

    The cliff is anywhere between them, so the time is that of the deeper one with probability p,
    the share of the way that lies behind, else that of the shallower: the mean lies on the line,
    and the standard deviation is their difference times √(p·(1 - p)).

    Returns:
        Of the logarithm of the time; 0 beyond what was measured.
    """
    drafting = [cell for cell in cells if cell.depth > 0]
    below = max((c for c in drafting if c.depth < depth), key=_depth, default=None)
    above = min((c for c in drafting if c.depth > depth), key=_depth, default=None)
    if below is None or above is None:
        return 0.0
    behind = (depth - below.depth) / (above.depth - below.depth)
    return abs(above.log_seconds - below.log_seconds) * sqrt(behind * (1 - behind))


def _depth(cell: CellTime) -> int:
    return cell.depth


@dataclass(frozen=True, slots=True)
class _Near:
    """Where a line must fit, and how fast it stops being one away from there."""

    depth: int
    curvature: float

    def variance(self, depth: int) -> float:
        return (self.curvature * (depth - self.depth)) ** 2


@dataclass(frozen=True, slots=True, kw_only=True)
class _Line:
    """Step time over depth, in units of `scale` seconds: 1 + slope · (depth - centre)."""

    scale: float
    centre: float
    level: float
    level_variance: float
    slope: float
    slope_variance: float
    misfit: float
    """Relative distance of the cells from the line that their own errors do not explain."""

    @classmethod
    def fit(
        cls,
        cells: Iterable[CellTime],
        prior: tuple[float, float],
        now_s: float,
        near: _Near | None = None,
    ) -> "_Line":
        """Weighted least squares, with the prior as one more observation of the slope.

        Args:
            cells: what was measured.
            prior: mean and error of the slope.
            now_s: Unix seconds.
            near: fit best at this depth: the further a cell, the less it says.
        """
        rows = [
            (
                c.depth,
                exp(c.log_seconds),
                1
                / (
                    c.variance_at(now_s)
                    + LEAST_VARIANCE
                    + (near.variance(c.depth) if near else 0.0)
                ),
            )
            for c in cells
        ]
        drafting = [row for row in rows if row[0] > 0] or rows
        total = sum(weight for _, _, weight in drafting)
        centre = sum(depth * weight for depth, _, weight in drafting) / total
        scale = sum(seconds * weight for _, seconds, weight in drafting) / total
        stretch = 1 + prior[0] * centre
        mean, sd = prior[0] / stretch, prior[1] / stretch**2
        spread = sum(weight * (depth - centre) ** 2 for depth, _, weight in drafting)
        product = sum(
            weight * (depth - centre) * (seconds / scale - 1) for depth, seconds, weight in drafting
        )
        precision = spread + 1 / sd**2
        slope = (product + mean / sd**2) / precision
        off = sum(
            (seconds / scale - 1 - slope * (depth - centre)) ** 2 - 1 / weight
            for depth, seconds, weight in drafting
        )
        return cls(
            scale=scale,
            centre=centre,
            level=1.0,
            level_variance=1 / total,
            slope=slope,
            slope_variance=1 / precision,
            misfit=sqrt(max(0.0, off) / (len(drafting) - 2)) if len(drafting) > 2 else 0.0,  # noqa: PLR2004
        )

    def slope_at_zero(self) -> tuple[float, float]:
        """The slope and its error relative to depth 0, which all buckets have in common."""
        base = max(LEAST_BASE_SHARE, self.level - self.slope * self.centre)
        return self.slope / base, self.slope_variance**0.5 / base**2

    def at(self, depth: int) -> tuple[float, float]:
        """Relative step time and its variance."""
        distance = depth - self.centre
        return (
            max(LEAST_TIME_SHARE, self.level + self.slope * distance),
            self.level_variance + self.slope_variance * distance**2,
        )
