"""Step time per (batch bucket, depth): a property of the hardware, so it is remembered for hours.

What is compared between depths is the *logarithm of the mean step time*, and each pod has a speed
factor of its own: neighbours on the node, clocks, longer contexts slow all depths of a pod alike
and change within seconds, while the ratio between depths hardly changes at all. `step_filter` tells
the two apart, so that a probe on a slow pod, or at a slow moment, does not make its depth look
slow; `step_table` predicts what was not measured.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace
from math import exp, log
from typing import Final

from fathom.measurement.counters import Cell, StepKind
from fathom.tuning.estimate.prompts import Prompts

WINDOW_SD: Final = 0.01
"""Relative spread of a window's mean step time that more steps do not reduce."""
STEP_SD: Final = 0.3
"""Relative spread of single decode steps."""
CELL_DRIFT_PER_S: Final = 0.02**2 / 1800
"""Variance that a cell gains per second: 2 % in half an hour."""
SPEED_DRIFT_PER_S: Final = 0.01**2 / 10
"""Variance that a pod's speed gains per second."""
SPEED_SD: Final = 0.05
"""Spread between pods that are all well."""
SPEED_MEMORY_S: Final = 300.0
"""How long a pod stays slower or faster than usual."""
PRESENT_S: Final = 1800.0
"""How long after its last window a pod counts as present: three windows of the longest."""
ALIKE_FACTOR: Final = 1.25
"""Between the usual speeds of two pods at most, if both are of one kind."""
LEAST_KNOWN_SHARE: Final = 0.5
"""Share of the present pods that is known, before anything is stated of them all."""
KIND_WINDOWS: Final = 3.0
"""Windows of a pod after which it is known whether it is like the others."""
USUAL_SD: Final = 0.025
"""Spread of a pod's speed about what is usual for it."""
USUAL_WINDOWS: Final = 20.0
"""Windows after which it is known what is usual."""
BATCH_SD: Final = 0.05
"""Error of a ratio between depths per factor of two in batch *within* a bucket: padding to captured
graphs makes steps there that no line knows."""


KEPT_FACTOR: Final = 1.5
"""Times as many prompt tokens in a mixed step, or as few, at which the table goes over to them."""
LEAST_NET_SHARE: Final = 0.05
"""Share of a mixed step's time, at least, when the price of prompts is taken off it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CellTime:
    """Mean step time of one cell; of a mixed one, with `StepTimes.prompt_tokens` of prompts."""

    batch_le: int
    depth: int
    step: StepKind
    log_seconds: float
    variance: float
    at_s: float
    """Time of the last measurement (Unix seconds)."""
    log_batch: float
    """Logarithm to base 2 of the mean batch that was measured last."""
    windows: int = 0
    """In which it was measured, up to a few."""

    @property
    def cell(self) -> Cell:
        return Cell(self.batch_le, self.depth, self.step)

    def longer(self, seconds: float) -> "CellTime":
        """The same steps, if they took so many seconds more; negative: less."""
        before_s = exp(self.log_seconds)
        after_s = max(LEAST_NET_SHARE * before_s, before_s + seconds)
        return replace(
            self, log_seconds=log(after_s), variance=self.variance * (before_s / after_s) ** 2
        )

    def variance_at(self, now_s: float) -> float:
        return self.variance + CELL_DRIFT_PER_S * max(0.0, now_s - self.at_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSpeed:
    """How much slower than the table one pod is at present."""

    pod: str
    log_factor: float
    variance: float
    at_s: float
    usual: float = 0.0
    """Its mean factor over the last hours."""
    usual_windows: float = 0.0
    """Windows that `usual` rests on, discounted."""

    def at(self, now_s: float, dispersion: float) -> "PodSpeed":
        """What is expected of it now: what slows a pod for a moment passes within minutes."""
        passed_s = max(0.0, now_s - self.at_s)
        kept = exp(-passed_s / SPEED_MEMORY_S) if self.usual_windows >= USUAL_WINDOWS else 1.0
        grown = self.variance + dispersion * SPEED_DRIFT_PER_S * passed_s
        most = max(
            (USUAL_SD if self.usual_windows >= USUAL_WINDOWS else SPEED_SD) ** 2, self.variance
        )
        return replace(
            self,
            log_factor=self.usual + kept * (self.log_factor - self.usual),
            variance=min(grown, most),
            at_s=max(now_s, self.at_s),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTimes:
    """The table and the pods' present speeds."""

    cells: tuple[CellTime, ...] = ()
    pods: tuple[PodSpeed, ...] = ()
    dispersions: tuple[tuple[int, float], ...] = ()
    """Pairs of bucket and observed over assumed variance between windows, learned. Where padding to
    captured graphs makes cliffs within a bucket, it is large."""
    prompt_tokens: float = 0.0
    """That mixed steps in the table have; 0: nobody counts them, and they are as they came."""

    def with_prompts(self, prompts: Prompts) -> "StepTimes":
        """The table for steps with as many prompt tokens as they have now, give or take a half.

        What was measured of mixed steps when nobody counted their prompts is dropped.
        """
        tokens = prompts.tokens_per_mixed_step
        if not tokens or tokens / KEPT_FACTOR <= self.prompt_tokens <= tokens * KEPT_FACTOR:
            return self
        more_s = prompts.price * (tokens - self.prompt_tokens)
        cells = (
            each if each.step is StepKind.DECODE else each.longer(more_s)
            for each in self.cells
            if each.step is StepKind.DECODE or self.prompt_tokens
        )
        return replace(self, cells=tuple(cells), prompt_tokens=tokens)

    def of(self, pods: Collection[str]) -> "StepTimes":
        """The same table, with the speeds of these pods alone."""
        return replace(self, pods=tuple(each for each in self.pods if each.pod in pods))

    def dispersion(self, batch_le: int) -> float:
        """Observed over assumed variance in a bucket; 1 until it is learned."""
        return next((each for bucket, each in self.dispersions if bucket == batch_le), 1.0)

    @property
    def pods_are_alike(self) -> bool:
        """Whether all present pods are of one kind, as far as most are known.

        Another kind has other costs of depth.
        """
        usual = [pod.usual for pod in self._present if self.is_known(pod.pod)]
        if len(usual) < LEAST_KNOWN_SHARE * len(self._present):
            return False
        return not usual or exp(max(usual) - min(usual)) <= ALIKE_FACTOR

    def is_known(self, pod: str) -> bool:
        """Whether it is known what a pod is like; there is nothing that one alone could be unlike.

        Of pods beyond those that are kept nothing is known, and they are taken for the others.
        """
        if len(self._present) < 2:  # noqa: PLR2004 - it takes two
            return True
        windows = (each.usual_windows for each in self.pods if each.pod == pod)
        return next(windows, KIND_WINDOWS) >= KIND_WINDOWS

    @property
    def _present(self) -> list[PodSpeed]:
        newest_s = max((pod.at_s for pod in self.pods), default=0.0)
        return [pod for pod in self.pods if newest_s - pod.at_s <= PRESENT_S]

    def speed(self) -> float:
        """The pods' present mean factor over the table, as a logarithm.

        Not of those that are remembered from earlier: a pod that is gone slows nobody down.
        """
        present = [pod.log_factor for pod in self._present]
        return sum(present) / len(present) if present else 0.0
