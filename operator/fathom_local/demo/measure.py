"""The measurements: tuned against static in slices, and a sweep of static depths."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from fathom.core.depth import depth_at, summary
from fathom_local.demo.compare import Ratio, paired_ratio
from fathom_local.demo.fleet import Fleet
from fathom_local.demo.observe import token_rate
from fathom_local.demo.phases import Timing
from fathom_local.engine.traffic import Phase
from fathom_local.errors import LocalClusterError

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class PhaseResult:
    """One phase's comparison. Rates are tokens per second over all pods."""

    phase: Phase
    depth: int
    """Depth in force at this phase's batch, at the end."""
    schedule: str
    """Depths from the smallest batch to the largest, at the end."""
    tuned: tuple[float, ...]
    static: tuple[float, ...]

    @property
    def ratio(self) -> Ratio:
        """Tuned over static."""
        return paired_ratio(self.tuned, self.static)


@dataclass(frozen=True, slots=True)
class SweepResult:
    """Tokens per second of each static depth, for one phase."""

    phase: Phase
    rates: dict[int, float]

    @property
    def best(self) -> int:
        """The depth with the highest rate."""
        return max(self.rates, key=self.rates.__getitem__)

    def loss(self, depth: int) -> float:
        """Share of the best rate that is lost at `depth`."""
        return 1 - self.rates[depth] / self.rates[self.best]


async def rate_over(fleet: Fleet, seconds: float) -> float:
    """Tokens per second over the next seconds.

    Raises:
        LocalClusterError: a pod started anew, or went, while it was measured.
    """
    before = await fleet.counters()
    await asyncio.sleep(seconds)
    rate = token_rate(before, await fleet.counters())
    if rate is None:
        raise LocalClusterError("A pod restarted while it was measured; nothing can be compared.")
    return rate


async def compare(
    fleet: Fleet, phase: Phase, static_depth: int, timing: Timing, progress: Progress
) -> PhaseResult:
    """Tuned and static in turn on the same pods, in the order ABBA, so that a drift cancels."""
    rates: dict[bool, list[float]] = {False: [], True: []}
    for pair in range(timing.pairs):
        for static in (False, True) if pair % 2 == 0 else (True, False):
            name = f"static {static_depth}" if static else "tuned"
            progress(f"slice {pair + 1}/{timing.pairs}: {name}")
            await fleet.pin(static_depth if static else None)
            rates[static].append(await rate_over(fleet, timing.slice_seconds))
    await fleet.pin(None)
    schedule = (await fleet.document()).schedule
    batch = max(1, round(phase.concurrency / len(await fleet.pods())))
    return PhaseResult(
        phase,
        depth_at(schedule, batch),
        summary(schedule),
        tuple(rates[False]),
        tuple(rates[True]),
    )


async def sweep(
    fleet: Fleet, phase: Phase, depths: range, timing: Timing, progress: Progress
) -> SweepResult:
    """Every static depth, up and down again, so that a drift cancels; traffic must be running."""
    rates: dict[int, list[float]] = {depth: [] for depth in depths}
    for turn in range(timing.sweep_rounds):
        for depth in depths if turn % 2 == 0 else reversed(depths):
            progress(f"round {turn + 1}/{timing.sweep_rounds}: static {depth}")
            await fleet.pin(depth)
            rates[depth].append(await rate_over(fleet, timing.sweep_seconds))
    return SweepResult(phase, {depth: sum(seen) / len(seen) for depth, seen in rates.items()})
