"""The truth of one replica in one tick, number by number.

The same formulae as `Course.rate`, for fleets whose batches follow from what was decided. Nested
lists, since reading one number from a list is far cheaper than from an array.
"""

from dataclasses import dataclass
from typing import Self

from fathom_local.tuner_bench.course import OBEYS, Course
from fathom_local.tuner_bench.tpot import Requests


@dataclass(frozen=True, slots=True)
class Work:
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
class Plant:
    """Indexed by batch and depth, by tick, or by tick and replica."""

    seconds: list[list[float]]
    attention_s: list[list[float]]
    prefill_s: float
    slowness: list[list[float]]
    context: list[float]
    survival: list[list[float]]
    tpot_spread: list[list[float]]
    own_depth: list[list[int]]
    requests: Requests | None
    """How they differ, where an SLO is asked for."""

    @classmethod
    def of(cls, course: Course) -> Self:
        return cls(
            seconds=course.hardware.seconds.tolist(),
            attention_s=course.hardware.attention_s.tolist(),
            prefill_s=course.prefill_s,
            slowness=course.slowness.tolist(),
            context=course.context.tolist(),
            survival=course.survival.tolist(),
            tpot_spread=course.tpot_spread.tolist(),
            own_depth=course.own_depth.tolist(),
            requests=Requests.of(course) if course.world.fleet.tpot_milliseconds else None,
        )

    def work(
        self, tick: int, replica: int, batch: int, asked: int, *, wear: float, lost: float
    ) -> Work:
        """What a replica with this batch does if it is asked to draft so deep."""
        own = self.own_depth[tick][replica]
        depth = asked if own == OBEYS else own
        survival, length, factor = [], 1.0, 1.0
        for each in self.survival[tick][:depth]:
            factor *= wear
            survival.append(each * factor)
            length += each * factor
        decode_s = self.slowness[tick][replica] * (
            self.seconds[batch][depth] + self.attention_s[batch][depth] * self.context[tick]
        )
        made = batch * length
        step_s = (decode_s + made * self.prefill_s) / (1 - lost)
        return Work(
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
