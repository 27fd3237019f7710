"""The measurements: two depths in turn on the same pods."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

from local_cluster.demo.compare import Ratio, paired_ratio
from local_cluster.demo.fleet import DemoFleet
from local_cluster.demo.observe import token_rate
from local_cluster.engine.traffic import Phase
from local_cluster.errors import LocalClusterError

SteppingSeconds = Callable[[], float | None]
"""Processor seconds of the stepping threads so far; None: not known."""


@dataclass(frozen=True, slots=True)
class Slice:
    """What all pods generated in a few seconds at one depth."""

    tokens_per_second: float
    tokens_per_thread_second: float | None
    """By processor seconds of the threads in which the engines step; None: not known."""


Measure = Callable[[int | None], Awaitable[Slice]]
"""Takes a slice from now on at a depth; None: as the tuner wants it."""


@dataclass(frozen=True, slots=True)
class Turns:
    """Slices of the tuner's depth and of a static one, in turn on the same pods."""

    tuned: tuple[Slice, ...] = ()
    static: tuple[Slice, ...] = ()

    @property
    def by_threads(self) -> bool:
        """Whether the processor seconds of the stepping threads are known throughout."""
        return all(
            each.tokens_per_thread_second is not None for each in (*self.tuned, *self.static)
        )

    @property
    def ratio(self) -> Ratio:
        """Tuned over static: by processor seconds where they are known, else by wall time.

        Raises:
            ValueError: there are fewer than two pairs.
        """
        return paired_ratio(self.rates(self.tuned), self.rates(self.static))

    def rates(self, slices: Sequence[Slice]) -> list[float]:
        """What `ratio` compares, slice by slice."""
        return [
            each.tokens_per_thread_second
            if self.by_threads and each.tokens_per_thread_second is not None
            else each.tokens_per_second
            for each in slices
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The tuner and a static depth under one kind of traffic."""

    phase: Phase
    depth: int
    """The tuner's, at this phase's batch."""
    static_depth: int
    turns: Turns


def slices(fleet: DemoFleet, stepping_seconds: SteppingSeconds, seconds: float) -> Measure:
    """Measures a fleet at a depth, as soon as the depth is in force."""

    async def measure(depth: int | None) -> Slice:
        await fleet.pin(depth)
        return await _slice(fleet, stepping_seconds, seconds)

    return measure


async def _slice(fleet: DemoFleet, stepping_seconds: SteppingSeconds, seconds: float) -> Slice:
    """What is generated from now on.

    Raises:
        LocalClusterError: a pod started again, or went, while it was measured, or none served.
    """
    before, threads_before = await fleet.counters(), stepping_seconds()
    await asyncio.sleep(seconds)
    after, threads_after = await fleet.counters(), stepping_seconds()
    rate = token_rate(before, after)
    if rate is None:
        raise LocalClusterError("A pod restarted while it was measured; nothing can be compared.")
    if rate <= 0:
        raise LocalClusterError(
            f"No token was generated for {seconds:.0f} s under traffic; nothing can be compared. "
            "See the engines' output with `fathom local logs`."
        )
    if threads_before is None or threads_after is None or threads_after <= threads_before:
        return Slice(rate, None)
    tokens = sum(
        new.engine.generation_tokens - old.engine.generation_tokens
        for old, new in zip(before, after, strict=True)
    )
    return Slice(rate, tokens / (threads_after - threads_before))


async def in_turn(
    measure: Measure, static: int, pairs: int, show: Callable[[Turns], None]
) -> Turns:
    """The tuner and a static depth.

    The order is ABBA, so that a drift cancels.

    Args:
        measure: takes a slice.
        static: the depth that the tuner is compared with.
        pairs: how many slices of each.
        show: gets what there is so far, before each slice.
    """
    turns = Turns()
    for pair in range(pairs):
        for depth in (None, static) if pair % 2 == 0 else (static, None):
            show(turns)
            taken = await measure(depth)
            turns = (
                replace(turns, tuned=(*turns.tuned, taken))
                if depth is None
                else replace(turns, static=(*turns.static, taken))
            )
    return turns
