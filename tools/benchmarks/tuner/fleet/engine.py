"""One simulated engine: serves at the course's true speed, and counts with the world's noise.

Truth and counts are apart on purpose. A policy is scored by what it would make in expectation;
what the tuner reads is one noisy realisation of that.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import ceil, exp, sqrt
from typing import Final

from benchmarks.tuner.fleet.load import Batch
from benchmarks.tuner.fleet.normals import CUT
from benchmarks.tuner.fleet.plant import CourseWork
from benchmarks.tuner.fleet.tpot import BOUNDS_S
from benchmarks.tuner.worlds.parts import NoisePart, TrafficPart
from fathom.measurement.counters import (
    Cell,
    CellCounts,
    DraftCell,
    DraftCounts,
    EngineCounts,
    PodCounters,
    StepKind,
)
from fathom.measurement.deltas import bucket_of

_SECONDS_PER_PREEMPTION: Final = 2.0
"""What one preempted request costs: it is prefilled again, context and all."""


@dataclass(slots=True)
class _Tally:
    """Sums over the steps of one batch bucket and depth, as cheap to add to as can be."""

    steps: float = 0.0
    mixed_steps: float = 0.0
    decode_s: float = 0.0
    mixed_s: float = 0.0
    tokens: float = 0.0
    mixed_tokens: float = 0.0
    requests: float = 0.0
    mixed_requests: float = 0.0
    prefill_tokens: float = 0.0
    drafts: float = 0.0
    accepted: list[float] = field(default_factory=list)


@dataclass
class CourseEngine:
    """Counters of one engine, as the plugin and vLLM would count them."""

    pod: str
    started_at_s: float
    noise: NoisePart
    traffic: TrafficPart
    normals: Iterator[float]
    generation_tokens: float = 0.0
    accepted_tokens: float = 0.0
    drafts: float = 0.0
    draft_tokens: float = 0.0
    preemptions: float = 0.0
    tpot_seconds_sum: float = 0.0
    _tallies: dict[tuple[int, int], _Tally] = field(default_factory=dict)
    _moved: set[tuple[int, int]] = field(default_factory=set)
    """Since the last look."""
    _cells: dict[Cell, CellCounts] = field(default_factory=dict)
    _draft_cells: dict[DraftCell, DraftCounts] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._tpot = [0.0] * len(BOUNDS_S)
        self._effect = sqrt(self.noise.design_effect)
        self._chunks = ceil(self.traffic.prompt_tokens / self.traffic.prefill_chunk)

    def serve(self, work: CourseWork, seconds: float, prefill_s: float) -> None:
        """Count what some seconds of this work make, with `prefill_s` for each token of it."""
        steps = work.rate * seconds / (work.batch * work.length)
        drafted = steps * work.batch
        key = (bucket_of(work.batch), work.depth)
        tally = self._tallies.get(key)
        if tally is None:
            tally = self._tallies[key] = _Tally(accepted=[0.0] * work.depth)
        self._moved.add(key)
        accepted = self._accept(drafted, work.survival, tally.accepted)
        made = drafted + accepted
        expected = work.batch * work.length
        share = 1 - exp(-self._chunks * expected / self.traffic.output_tokens)
        mixed = share * steps
        tally.steps += steps - mixed
        tally.mixed_steps += mixed
        tally.decode_s += self._spent_s(steps - mixed, work.decode_s)
        tally.mixed_s += self._spent_s(mixed, work.decode_s + expected * prefill_s / share)
        tally.tokens += made * (1 - share)
        tally.mixed_tokens += made * share
        tally.requests += drafted * (1 - share)
        tally.mixed_requests += drafted * share
        tally.drafts += drafted
        self.generation_tokens += made
        self.accepted_tokens += accepted
        if work.depth:
            self.drafts += drafted
            self.draft_tokens += drafted * work.depth
        requests = made / self.traffic.output_tokens
        tally.prefill_tokens += requests * self.traffic.prompt_tokens
        self.tpot_seconds_sum += requests * work.tpot_s
        if work.tpot_up_to:
            self._tpot = [
                count + requests * share
                for count, share in zip(self._tpot, work.tpot_up_to, strict=True)
            ]
        self.preemptions += work.lost * seconds * work.batch / _SECONDS_PER_PREEMPTION

    def counters(
        self, at_s: float, *, generation: int, live_depth: bool, batch: Batch
    ) -> PodCounters:
        """One look. Cells that did not move stay the very same objects."""
        self._take_stock()
        requests = self.generation_tokens / self.traffic.output_tokens
        return PodCounters(
            pod=self.pod,
            at_s=at_s,
            started_at_s=self.started_at_s,
            engine=EngineCounts(
                generation_tokens=self.generation_tokens,
                prompt_tokens=requests * self.traffic.prompt_tokens,
                preemptions=self.preemptions,
                drafts=self.drafts,
                draft_tokens=self.draft_tokens,
                accepted_tokens=self.accepted_tokens,
                tpot_seconds_sum=self.tpot_seconds_sum,
                tpot_count=requests,
                finished_requests=requests,
                requests_running=float(batch.running),
                requests_waiting=batch.waiting,
                kv_cache_usage=batch.kv_usage,
            ),
            live_depth=live_depth,
            depth_generation=generation,
            cells=dict(self._cells),
            drafts=dict(self._draft_cells),
            tpot=tuple(zip(BOUNDS_S, self._tpot, strict=True)),
        )

    def _take_stock(self) -> None:
        for bucket, depth in self._moved:
            tally = self._tallies[bucket, depth]
            self._cells[Cell(bucket, depth, StepKind.DECODE)] = CellCounts(
                tally.steps, tally.decode_s, tally.tokens, tally.requests
            )
            self._cells[Cell(bucket, depth, StepKind.MIXED)] = CellCounts(
                tally.mixed_steps,
                tally.mixed_s,
                tally.mixed_tokens,
                tally.mixed_requests,
                tally.prefill_tokens,
            )
            if depth:
                self._draft_cells[DraftCell(bucket, depth)] = DraftCounts(
                    tally.drafts, tuple(tally.accepted)
                )
        self._moved.clear()

    def _accept(self, drafted: float, survival: tuple[float, ...], counts: list[float]) -> float:
        """Count accepted drafts by position: binomial, with the world's design effect.

        Returns:
            Their sum.
        """
        total, reached, before = 0.0, drafted, 1.0
        for position, each in enumerate(survival):
            mean = reached * each / before if before > 0 else 0.0
            rejected = reached - mean
            sd = self._effect * sqrt(max(0.0, mean * rejected / reached)) if reached > 0 else 0.0
            reached = mean + min(sd, mean / CUT, rejected / CUT) * next(self.normals)
            before = each
            counts[position] += reached
            total += reached
        return total

    def _spent_s(self, steps: float, step_s: float) -> float:
        if steps <= 0:
            return 0.0
        spread = min(self.noise.step_spread / sqrt(steps), 1 / CUT)
        return steps * step_s * (1 + spread * next(self.normals))
