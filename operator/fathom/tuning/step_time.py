"""Step time per (batch bucket, depth): a property of the hardware, so it is remembered for hours.

What is compared between depths is the *logarithm of the mean step time*, and each pod has a speed
factor of its own: neighbours on the node, clocks, longer contexts slow all depths of a pod alike
and change within seconds, while the ratio between depths hardly changes at all. A new measurement
is split between the two by their variances (a Kalman filter without cross terms). So a probe on a
slow pod, or at a slow moment, does not make its depth look slow.

A depth that was not measured is predicted: linear in depth, with a prior for the slope that comes
from the nearest bucket that knows its own, and with an error that says how far this can be trusted.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from math import exp, hypot, inf, log, log2
from types import MappingProxyType
from typing import Final, TypeVar

from fathom.core.measurement import Cell, CellCounts, PodDelta, StepKind

LEAST_STEPS: Final = 3.0
"""The logarithm of a mean over fewer steps is biased; its error says the rest."""
WINDOW_SD: Final = 0.01
"""Relative spread of a window's mean step time that more steps do not reduce."""
STEP_SD: Final = 0.3
"""Relative spread of single decode steps."""
MIXED_SD: Final = 1.0
"""Relative spread of single mixed steps: their prompts differ in length."""
ELASTICITY_RIDGE: Final = 0.5
"""Squared factors of two in batch that must be seen before the elasticity is believed by half."""
ELASTICITY_KEPT: Final = 0.997
DISPERSIONS: Final = (0.25, 64.0)
"""Bounds of what is learnt of the spread between windows."""
CELL_DRIFT_PER_S: Final = 0.02**2 / 1800
"""Variance that a cell gains per second: 2 % in half an hour."""
SPEED_DRIFT_PER_S: Final = 0.01**2 / 10
"""Variance that a pod's speed gains per second."""
SPEED_SD: Final = 0.05
"""Spread between pods that are all well."""
MEASURED_SD: Final = 0.1
"""A cell whose error is larger counts as predicted."""
SLOPE: Final = (0.08, 0.06)
"""Step time that one more token costs, relative to depth 0: mean and error before anything is
known."""
SLOPE_BORROWED_SD: Final = 0.02
"""Error per factor of two in batch when another bucket's slope is borrowed."""
CURVATURE_SD: Final = 0.02
"""Error per token of distance to the nearest measured depth."""
NO_DRAFT_SD: Final = 0.1
"""Error of predicting depth 0, which drafts nothing at all, from the others, or the reverse."""
BORROWED_SD: Final = 0.1
"""Error per factor of two in batch when a bucket has nothing of its own."""
BATCH_SD: Final = 0.05
"""Error of a ratio between depths per factor of two in batch *within* a bucket: padding to captured
graphs makes steps there that no line knows."""
LAPSE_S: Final = 120.0
"""A cell that was not measured for so long may have been measured at other batches."""
MOST_CELLS: Final = 144
MOST_PODS: Final = 40


@dataclass(frozen=True, slots=True)
class CellTime:
    """Mean step time of one cell."""

    batch_le: int
    depth: int
    step: StepKind
    log_seconds: float
    variance: float
    at_s: float
    """Time of the last measurement (Unix seconds)."""
    log_batch: float
    """Logarithm to base 2 of the mean batch that was measured last."""

    @property
    def cell(self) -> Cell:
        return Cell(self.batch_le, self.depth, self.step)

    def variance_at(self, now_s: float) -> float:
        return self.variance + CELL_DRIFT_PER_S * max(0.0, now_s - self.at_s)


@dataclass(frozen=True, slots=True)
class PodSpeed:
    """How much slower than the table one pod is at present."""

    pod: str
    log_factor: float
    variance: float
    at_s: float
    batch_le: int = 0
    """Bucket of its last window; 0: none yet."""
    log_batch: float = 0.0
    """Logarithm to base 2 of its mean batch then."""

    def variance_at(self, now_s: float, dispersion: float) -> float:
        grown = self.variance + dispersion * SPEED_DRIFT_PER_S * max(0.0, now_s - self.at_s)
        return min(grown, max(SPEED_SD**2, self.variance))


_Item = TypeVar("_Item", CellTime, PodSpeed)
_Row = tuple[int, StepKind]
"""A bucket's steps of one kind, at all depths."""


@dataclass(frozen=True, slots=True)
class StepTime:
    """An estimate of the logarithm of one step's seconds."""

    log_seconds: float
    variance: float
    measured: bool


@dataclass(frozen=True, slots=True)
class Elasticity:
    """How step time grows with the batch within one bucket: d log t / d log2 B, at any depth.

    Learnt by least squares from how both change from one window of a pod to its next, with a ridge,
    discounted per window. Without it a pod whose batch grew would look slow.
    """

    batch_le: int
    squares: float = 0.0
    """Sum of squared changes of the batch's logarithm."""
    products: float = 0.0
    """Sum of products of both changes."""

    @property
    def slope(self) -> float:
        return self.products / (self.squares + ELASTICITY_RIDGE)

    def updated(self, batch_change: float, time_change: float) -> "Elasticity":
        return Elasticity(
            self.batch_le,
            ELASTICITY_KEPT * self.squares + batch_change**2,
            ELASTICITY_KEPT * self.products + batch_change * time_change,
        )


@dataclass(frozen=True, slots=True)
class StepTimes:
    """The table and the pods' present speeds."""

    cells: tuple[CellTime, ...] = ()
    pods: tuple[PodSpeed, ...] = ()
    elasticities: tuple[Elasticity, ...] = ()
    dispersions: tuple[tuple[int, float], ...] = ()
    """Pairs of bucket and observed over assumed variance between windows, learnt. Where padding to
    captured graphs makes cliffs within a bucket, it is large."""

    def dispersion(self, batch_le: int) -> float:
        """Observed over assumed variance in a bucket; 1 until it is learnt."""
        return next((each for bucket, each in self.dispersions if bucket == batch_le), 1.0)

    def updated(self, deltas: Iterable[PodDelta]) -> "StepTimes":
        """With what the pods measured."""
        filter_ = _Filter(self)
        for delta in deltas:
            filter_.add(delta)
        return filter_.result()

    def speed(self) -> float:
        """The pods' present mean factor over the table, as a logarithm."""
        return sum(pod.log_factor for pod in self.pods) / len(self.pods) if self.pods else 0.0


_NOWHERE: Final[Mapping[int, float]] = MappingProxyType({})


class StepTable:
    """The step times as they are believed at one moment, each looked up once."""

    def __init__(
        self, times: StepTimes, now_s: float, log_batches: Mapping[int, float] = _NOWHERE
    ) -> None:
        """Look at a table.

        Args:
            times: the table.
            now_s: Unix seconds.
            log_batches: logarithm to base 2 of the present mean batch of each bucket under load.
        """
        self._now_s = now_s
        self._log_batches = log_batches
        self._cells = {(each.batch_le, each.depth, each.step): each for each in times.cells}
        measured: dict[_Row, list[CellTime]] = {}
        for each in times.cells:
            if each.variance_at(now_s) <= MEASURED_SD**2:
                measured.setdefault((each.batch_le, each.step), []).append(each)
        self._measured = {
            row: tuple(sorted(cells, key=lambda cell: cell.depth))
            for row, cells in measured.items()
        }
        self._estimates: dict[tuple[int, int, StepKind], StepTime | None] = {}
        self._lines: dict[_Row, _Line] = {}
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
        cell = self.at(batch_le, depth, step)
        if cell is not None and (variance := cell.variance_at(self._now_s)) <= MEASURED_SD**2:
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
        line = self._lines.get(row)
        if line is None or line.prior != slope:
            line = self._lines[row] = _Line.fit(cells, slope, self._now_s)
        relative, variance = line.at(depth)
        distance = min(abs(depth - cell.depth) for cell in cells)
        variance = variance / relative**2 + (CURVATURE_SD * distance) ** 2
        if (depth == 0) != any(cell.depth == 0 for cell in cells) or depth == 0:
            variance += NO_DRAFT_SD**2
        return StepTime(log(line.scale * relative), variance, measured=False)

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
            return SLOPE
        line = _Line.fit(self.measured_depths(other, step), SLOPE, self._now_s)
        slope, sd = line.slope_at_zero()
        return slope, hypot(sd, SLOPE_BORROWED_SD * log2(batch_le / other))


@dataclass(frozen=True, slots=True)
class _Line:
    """Step time over depth, in units of `scale` seconds: 1 + slope · (depth - centre)."""

    prior: tuple[float, float]
    """Mean and error of the slope before anything was measured here."""
    scale: float
    centre: float
    level: float
    level_variance: float
    slope: float
    slope_variance: float

    @classmethod
    def fit(cls, cells: Iterable[CellTime], prior: tuple[float, float], now_s: float) -> "_Line":
        """Weighted least squares, with the prior as one more observation of the slope."""
        rows = [(c.depth, exp(c.log_seconds), 1 / (c.variance_at(now_s) + 1e-6)) for c in cells]
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
        return cls(
            prior=prior,
            scale=scale,
            centre=centre,
            level=1.0,
            level_variance=1 / total,
            slope=(product + mean / sd**2) / precision,
            slope_variance=1 / precision,
        )

    def slope_at_zero(self) -> tuple[float, float]:
        """The slope and its error relative to depth 0, which all buckets have in common."""
        base = max(0.2, self.level - self.slope * self.centre)
        return self.slope / base, self.slope_variance**0.5 / base**2

    def at(self, depth: int) -> tuple[float, float]:
        """Relative step time and its variance."""
        distance = depth - self.centre
        return (
            max(0.05, self.level + self.slope * distance),
            self.level_variance + self.slope_variance * distance**2,
        )


class _Filter:
    """One update of the table, in the making."""

    def __init__(self, times: StepTimes) -> None:
        self._cells: dict[Cell, CellTime] = {cell.cell: cell for cell in times.cells}
        self._pods: dict[str, PodSpeed] = {pod.pod: pod for pod in times.pods}
        self._dispersions = dict(times.dispersions)
        self._elasticities = {each.batch_le: each for each in times.elasticities}

    def add(self, delta: PodDelta) -> None:
        decoded = any(
            cell.step is StepKind.DECODE and counts.steps >= LEAST_STEPS
            for cell, counts in delta.cells.items()
        )
        # Well-known cells first: they tell the pod's speed, against which new ones are measured.
        for cell, counts in sorted(
            delta.cells.items(), key=lambda item: (self._variance(item[0]), item[0])
        ):
            if counts.steps >= LEAST_STEPS and counts.step_seconds > 0:
                mixed = cell.step is StepKind.MIXED
                self._add(delta, cell, counts, tells_speed=not (mixed and decoded))

    def _variance(self, cell: Cell) -> float:
        known = self._cells.get(cell)
        return known.variance if known else inf

    def _add(self, delta: PodDelta, cell: Cell, counts: CellCounts, *, tells_speed: bool) -> None:
        at_s = delta.to_s
        spread = MIXED_SD if cell.step is StepKind.MIXED else STEP_SD
        dispersion = self._dispersions.get(cell.batch_le, 1.0)
        noise = dispersion * (WINDOW_SD**2 + spread**2 / counts.steps)
        batch = log2(counts.scheduled_requests / counts.steps)
        elasticity = self._elasticities.get(cell.batch_le) or Elasticity(cell.batch_le)
        # All of a bucket's cells are told at the same batch.
        seen = log(counts.step_seconds / counts.steps) - elasticity.slope * (
            batch - log2(cell.batch_le)
        )
        speed = self._speed(delta.pod, at_s, dispersion)
        known = self._cells.get(cell)
        if known is None:
            self._cells[cell] = CellTime(
                cell.batch_le,
                cell.depth,
                cell.step,
                seen - speed.log_factor,
                noise + speed.variance,
                at_s,
                batch,
            )
            self._pods[delta.pod] = speed
            return
        cell_variance = known.variance_at(at_s)
        lapsed = at_s - known.at_s > LAPSE_S
        if lapsed:
            cell_variance += (BATCH_SD * (batch - known.log_batch)) ** 2
        surprise = seen - known.log_seconds - speed.log_factor
        total = cell_variance + speed.variance + noise
        self._cells[cell] = replace(
            known,
            log_seconds=known.log_seconds + surprise * cell_variance / total,
            variance=cell_variance * (1 - cell_variance / total),
            at_s=max(at_s, known.at_s),
            log_batch=batch if lapsed else 0.7 * known.log_batch + 0.3 * batch,
        )
        if tells_speed:
            if speed.batch_le == cell.batch_le:
                change = batch - speed.log_batch
                self._elasticities[cell.batch_le] = elasticity.updated(
                    change, surprise + elasticity.slope * change
                )
            speed = replace(
                speed,
                log_factor=speed.log_factor + surprise * speed.variance / total,
                variance=speed.variance * (1 - speed.variance / total),
                batch_le=cell.batch_le,
                log_batch=batch,
            )
            learnt = exp(0.05 * (min(surprise**2 / total, 6.0) - 1))
            low, high = DISPERSIONS
            self._dispersions[cell.batch_le] = min(high, max(low, dispersion * learnt))
        self._pods[delta.pod] = speed

    def _speed(self, pod: str, at_s: float, dispersion: float) -> PodSpeed:
        known = self._pods.get(pod)
        if known is not None:
            return replace(
                known,
                variance=known.variance_at(at_s, dispersion),
                at_s=max(at_s, known.at_s),
            )
        # The first pod ever sets the scale of the table; the others are measured against it.
        return PodSpeed(pod, 0.0, SPEED_SD**2 if self._cells else WINDOW_SD**2, at_s)

    def result(self) -> StepTimes:
        """The new table, bounded: what was measured last is kept."""
        return StepTimes(
            cells=_newest(self._cells.values(), MOST_CELLS),
            pods=_newest(self._pods.values(), MOST_PODS),
            elasticities=tuple(self._elasticities[each] for each in sorted(self._elasticities)),
            dispersions=tuple(sorted(self._dispersions.items())),
        )


def _newest(items: Iterable[_Item], most: int) -> tuple[_Item, ...]:
    return tuple(sorted(items, key=lambda item: -item.at_s)[:most])
