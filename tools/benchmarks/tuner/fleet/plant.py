"""The truth of one replica in one tick, number by number.

The same formulae as `WorldCourse.rate`, for fleets whose batches follow from what was decided.
Nested lists, since reading one number from a list is far cheaper than from an array.
"""

from dataclasses import dataclass
from typing import Self

from benchmarks.tuner.course.course import OBEYS, WorldCourse
from benchmarks.tuner.fleet.tpot import Requests


@dataclass(frozen=True, slots=True)
class CourseWork:
    """What a replica does during one tick, at the depth in force."""

    batch: int
    depth: int
    rate: float
    """Expected tokens per second."""
    decode_s: float
    length: float
    survival: tuple[float, ...]
    """P(the first i drafts are accepted), i = 1 … depth."""
    tpot_s: float
    """Mean seconds per output token over requests."""
    lost: float
    """Share of the time lost to preemption."""
    tpot_up_to: tuple[float, ...] = ()
    """Share of the requests up to each of vLLM's bounds; empty where no SLO is asked for."""


@dataclass(frozen=True)
class CoursePlant:
    """Indexed by batch and depth, by tick, or by tick and replica."""

    seconds: list[list[float]]
    attention_s: list[list[float]]
    prefill_s: float
    slowness: list[list[float]]
    context: list[float]
    survival: list[list[float]]
    tpot_spread: list[list[float]]
    own_depth: list[list[int]]
    drafting_s: list[list[float]] | None
    """What drafting takes, where drafts are cut before they are verified; None: they are not."""
    requests: Requests | None
    """How they differ, where an SLO is asked for."""

    @classmethod
    def of(cls, course: WorldCourse) -> Self:
        return cls(
            seconds=course.hardware.seconds.tolist(),
            attention_s=course.hardware.attention_s.tolist(),
            prefill_s=course.prefill_s,
            slowness=course.slowness.tolist(),
            context=course.context.tolist(),
            survival=course.survival.tolist(),
            tpot_spread=course.tpot_spread.tolist(),
            own_depth=course.own_depth.tolist(),
            drafting_s=(
                course.hardware.drafting_s.tolist()
                if course.world.fleet.adaptive_verification
                else None
            ),
            requests=Requests.of(course) if course.world.fleet.tpot_milliseconds else None,
        )

    def work(
        self, tick: int, replica: int, batch: int, asked: int, *, wear: float, lost: float
    ) -> CourseWork:
        """What a replica with this batch does if it is asked to draft so deep."""
        own = self.own_depth[tick][replica]
        depth = asked if own == OBEYS else own
        survival, length, factor = [], 1.0, 1.0
        for each in self.survival[tick][:depth]:
            factor *= wear
            survival.append(each * factor)
            length += each * factor
        slowness = self.slowness[tick][replica]
        if self.drafting_s is None:
            decode_s = slowness * self._whole_s(tick, batch, depth)
        else:
            cut, decode_s = self._cut(tick, slowness, batch, survival, self.drafting_s[batch])
            # What was not verified counts as rejected.
            survival = [*survival[:cut], *(0.0 for _ in survival[cut:])]
            length = 1 + sum(survival)
        made = batch * length
        step_s = (decode_s + made * self.prefill_s) / (1 - lost)
        return CourseWork(
            batch=batch,
            depth=depth,
            rate=made / step_s,
            decode_s=decode_s,
            length=length,
            survival=tuple(survival),
            tpot_s=step_s / length * self.tpot_spread[tick][depth],
            lost=lost,
            tpot_up_to=self.requests.up_to(tick, depth, step_s / length) if self.requests else (),
        )

    def _whole_s(self, tick: int, batch: int, depth: int) -> float:
        """Seconds of a step that verifies all its drafts, at a pod's usual speed."""
        return self.seconds[batch][depth] + self.attention_s[batch][depth] * self.context[tick]

    def _cut(
        self,
        tick: int,
        slowness: float,
        batch: int,
        survival: list[float],
        drafting_s: list[float],
    ) -> tuple[int, float]:
        """To how many drafts a step is cut, what makes it fastest, and its seconds."""
        asked = len(survival)
        best, best_s, best_rate = 0, 0.0, 0.0
        made = float(batch)
        for depth in range(asked + 1):
            made += batch * survival[depth - 1] if depth else 0.0
            verifying_s = self._whole_s(tick, batch, depth) - drafting_s[depth]
            seconds = slowness * (verifying_s + drafting_s[asked])
            rate = made / (seconds + made * self.prefill_s)
            if rate > best_rate:
                best, best_s, best_rate = depth, seconds, rate
        return best, best_s
