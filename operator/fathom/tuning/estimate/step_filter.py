"""From what pods counted to step times: how much is the depth, and how much the pod?

A Kalman filter over the logarithms of the cells' mean step times and of each pod's speed, whose
observations are their sums; covariances are not kept (kept, they made the filter too sure of itself
in simulated fleets). A cell that is new starts at its prediction. A surprise that no error explains
is the cell's where few windows have measured it lately (a cliff that no line foretold; a stall in
the only window so far; prompts that came all at once), else the pod's (a neighbour on the node, a
throttled clock).
"""

from collections.abc import Iterable
from dataclasses import replace
from math import exp, inf, log, log2
from typing import Final

from fathom.measurement.counters import Cell, CellCounts, StepKind
from fathom.measurement.deltas import PodDelta
from fathom.tuning.estimate.prompts import NO_PROMPTS, Prompts
from fathom.tuning.estimate.step_table import StepTable
from fathom.tuning.estimate.step_time import (
    BATCH_SD,
    PRESENT_S,
    SPEED_SD,
    STEP_SD,
    WINDOW_SD,
    CellTime,
    PodSpeed,
    StepTimes,
)

LEAST_STEPS: Final = 3.0
"""The logarithm of a mean over fewer steps is biased; its error says the rest."""
MIXED_SD: Final = 1.0
"""Relative spread of single mixed steps where their prompts, which differ, are not counted."""
DISPERSION_FACTORS: Final = (0.25, 64.0)
"""Bounds of what is learned of the spread between windows, over what is assumed of it."""
DISPERSION_WEIGHT: Final = 0.05
"""Weight of one window in what is learned of it, as a logarithm."""
SURPRISE_FACTOR: Final = 6.0
"""One window's squared surprise counts as at most so many times its variance."""
BATCH_WEIGHT: Final = 0.3
"""Weight of one window in the mean batch that a cell is believed to be measured at."""
USUAL_KEPT_SHARE: Final = 0.99
"""Weight that the windows before keep with each new one: a hundred windows are what is usual."""
JUMP_Z: Final = 4.0
"""Surprise, in standard errors, that is a jump of the pod's speed."""
TRUSTED_WINDOWS: Final = 3
"""Before a cell has as many windows, such a surprise is the cell's."""
TRUSTED_S: Final = 1800.0
"""After so long without a window, such a surprise is the cell's again."""
LAPSE_S: Final = 120.0
"""A cell that was not measured for so long may have been measured at other batches."""
MOST_CELLS: Final = 256
"""Kept, the latest: the state must fit into a ConfigMap."""
MOST_PODS: Final = 40
"""Whose speed is kept, for the same reason. Probes run on one of them."""


def updated(
    times: StepTimes, deltas: Iterable[PodDelta], prompts: Prompts = NO_PROMPTS
) -> StepTimes:
    """The table with what the pods measured in one more window.

    Args:
        times: the table.
        deltas: what was measured.
        prompts: what is known of them, this window included.
    """
    filter_ = _Filter(times.with_prompts(prompts), prompts)
    for delta in deltas:
        filter_.add(prompts.levelled(delta, filter_.prompt_tokens))
    return filter_.result()


class _Filter:
    """One update of the table, in the making."""

    def __init__(self, times: StepTimes, prompts: Prompts) -> None:
        self._before = times
        self._prompts = prompts
        self.prompt_tokens = times.prompt_tokens
        self._cells: dict[Cell, CellTime] = {cell.cell: cell for cell in times.cells}
        self._pods: dict[str, PodSpeed] = {pod.pod: pod for pod in times.pods}
        self._dispersions = dict(times.dispersions)

    def add(self, delta: PodDelta) -> None:
        decoded = any(
            cell.step is StepKind.DECODE and counts.steps >= LEAST_STEPS
            for cell, counts in delta.cells.items()
        )
        # Well-known cells first: they tell the pod's speed, against which new ones are measured.
        for cell, counts in sorted(
            delta.cells.items(), key=lambda item: (self._variance(item[0]), item[0])
        ):
            # A page may show anything: steps without requests or seconds tell nothing.
            least = min(counts.step_seconds, counts.scheduled_requests)
            if counts.steps >= LEAST_STEPS and least > 0:
                mixed = cell.step is StepKind.MIXED
                self._add(delta, cell, counts, tells_speed=not (mixed and decoded))

    def _variance(self, cell: Cell) -> float:
        known = self._cells.get(cell)
        return known.variance if known else inf

    def _add(self, delta: PodDelta, cell: Cell, counts: CellCounts, *, tells_speed: bool) -> None:
        differ = cell.step is StepKind.MIXED and not self._prompts.known
        spread = MIXED_SD if differ else STEP_SD
        dispersion = self._dispersions.get(cell.batch_le, 1.0)
        noise = dispersion * (WINDOW_SD**2 + spread**2 / counts.steps)
        batch = log2(counts.scheduled_requests / counts.steps)
        seen = log(counts.step_seconds / counts.steps)
        speed = self._speed(delta.pod, delta.to_s, dispersion)
        known = self._known(cell, delta.to_s, batch)
        if known is None:
            first = CellTime(
                batch_le=cell.batch_le,
                depth=cell.depth,
                step=cell.step,
                log_seconds=seen - speed.log_factor,
                variance=noise + speed.variance,
                at_s=delta.to_s,
                log_batch=batch,
                windows=1,
            )
            self._cells[cell], self._pods[delta.pod] = first, speed
            return
        if not tells_speed:
            total = known.variance + speed.variance + noise
            surprise = seen - known.log_seconds - speed.log_factor
            self._cells[cell] = _moved(known, surprise, total)
            self._pods[delta.pod] = speed
            return
        self._share(delta.pod, known, speed, seen, noise)

    def _share(
        self,
        pod: str,
        known: CellTime,
        speed: PodSpeed,
        seen: float,
        noise: float,
    ) -> None:
        """Split one observation between the cell and the pod's speed, by their variances."""
        surprise = seen - known.log_seconds - speed.log_factor
        total = known.variance + speed.variance + noise
        low, high = DISPERSION_FACTORS
        learnt = exp(DISPERSION_WEIGHT * (min(surprise**2 / total, SURPRISE_FACTOR) - 1))
        bucket = known.batch_le
        self._dispersions[bucket] = min(high, max(low, self._dispersions.get(bucket, 1.0) * learnt))
        if surprise**2 > JUMP_Z**2 * total:
            if known.windows < TRUSTED_WINDOWS:
                known = replace(known, variance=known.variance + surprise**2)
            else:
                speed = replace(speed, variance=speed.variance + surprise**2)
            total += surprise**2
        self._cells[known.cell] = _moved(known, surprise, total)
        self._pods[pod] = replace(
            speed,
            log_factor=(now := speed.log_factor + surprise * speed.variance / total),
            variance=speed.variance * (1 - speed.variance / total),
            usual=speed.usual
            + (now - speed.usual) / (windows := 1 + USUAL_KEPT_SHARE * speed.usual_windows),
            usual_windows=windows,
        )

    def _known(self, cell: Cell, at_s: float, batch: float) -> CellTime | None:
        """What is believed of a cell before this window; None: nothing at all."""
        known = self._cells.get(cell)
        if known is None:
            table = StepTable(self._before, at_s, price=self._prompts.price)
            predicted = table.estimate(cell.batch_le, cell.depth, cell.step)
            if predicted is None:
                return None
            found = CellTime(
                batch_le=cell.batch_le,
                depth=cell.depth,
                step=cell.step,
                log_seconds=predicted.log_seconds,
                variance=predicted.variance,
                at_s=at_s,
                log_batch=batch,
            )
            return found if cell.step is StepKind.DECODE else found.longer(table.prompts_s)
        variance = known.variance_at(at_s)
        if at_s - known.at_s > TRUSTED_S:
            known = replace(known, windows=0)
        if at_s - known.at_s <= LAPSE_S:
            batch = (1 - BATCH_WEIGHT) * known.log_batch + BATCH_WEIGHT * batch
        else:
            variance += (BATCH_SD * (batch - known.log_batch)) ** 2
        return replace(known, variance=variance, at_s=max(at_s, known.at_s), log_batch=batch)

    def _speed(self, pod: str, at_s: float, dispersion: float) -> PodSpeed:
        known = self._pods.get(pod)
        if known is not None:
            return known.at(at_s, dispersion)
        # The first pod ever sets the scale of the table; the others are measured against it.
        return PodSpeed(
            pod=pod,
            log_factor=0.0,
            variance=SPEED_SD**2 if self._cells else WINDOW_SD**2,
            at_s=at_s,
        )

    def result(self) -> StepTimes:
        """The new table, bounded: what was measured last is kept."""
        return StepTimes(
            cells=_newest(self._cells.values(), MOST_CELLS),
            pods=self._kept_pods(),
            prompt_tokens=self.prompt_tokens,
            dispersions=tuple(sorted(self._dispersions.items())),
        )

    def _kept_pods(self) -> tuple[PodSpeed, ...]:
        """The same ones as before while they are there, so that of some it is known for sure."""
        newest_s = max((pod.at_s for pod in self._pods.values()), default=0.0)
        before = {pod.pod for pod in self._before.pods}

        def order(pod: PodSpeed) -> tuple[bool, bool, float]:
            gone = newest_s - pod.at_s > PRESENT_S
            return gone, pod.pod not in before, -pod.at_s

        return tuple(sorted(self._pods.values(), key=order)[:MOST_PODS])


def _moved(cell: CellTime, surprise: float, total: float) -> CellTime:
    """A cell after one observation whose surprise has this variance."""
    return replace(
        cell,
        log_seconds=cell.log_seconds + surprise * cell.variance / total,
        variance=cell.variance * (1 - cell.variance / total),
        windows=min(cell.windows + 1, TRUSTED_WINDOWS),
    )


def _newest(items: Iterable[CellTime], most: int) -> tuple[CellTime, ...]:
    return tuple(sorted(items, key=lambda item: -item.at_s)[:most])
