"""The measurements: two depths in turn until it is clear, and a sweep of static depths."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from local_cluster.demo.compare import Ratio, scatter, sequential_ratio
from local_cluster.demo.fleet import DemoFleet
from local_cluster.demo.observe import token_rate
from local_cluster.demo.phases import MISS_EACH, DemoTiming
from local_cluster.engine.traffic import Phase
from local_cluster.errors import LocalClusterError

Progress = Callable[[str], None]
Rate = Callable[[int | None], Awaitable[float]]
"""Tokens per second of a slice from now on at a depth; None: as the tuner wants it."""

_FIRST_LOOK_PAIRS = 2


@dataclass(frozen=True, slots=True)
class Pairs:
    """Slices in pairs, in tokens per second over all pods."""

    ours: tuple[float, ...]
    theirs: tuple[float, ...]

    @property
    def ratio(self) -> Ratio:
        """Ours over theirs; its interval holds though it was looked at after every pair."""
        return sequential_ratio(self.ours, self.theirs, MISS_EACH)

    @property
    def scatter(self) -> float:
        """By how much a pair differs from the others by chance, as a share."""
        return scatter(self.ours, self.theirs)


@dataclass(frozen=True, slots=True)
class PhaseResult:
    """One phase's comparison of the tuner (ours) with the user's static depth (theirs)."""

    phase: Phase
    depth: int
    """Depth in force at this phase's batch, at the end."""
    pairs: Pairs

    @property
    def ratio(self) -> Ratio:
        """Tuned over static."""
        return self.pairs.ratio


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


async def rate_over(fleet: DemoFleet, seconds: float) -> float:
    """Tokens per second over the next seconds.

    Raises:
        LocalClusterError: a pod started anew, or went, while it was measured, or none served.
    """
    before = await fleet.counters()
    await asyncio.sleep(seconds)
    rate = token_rate(before, await fleet.counters())
    if rate is None:
        raise LocalClusterError("A pod restarted while it was measured; nothing can be compared.")
    if rate <= 0:
        raise LocalClusterError(
            f"No token was generated for {seconds:.0f} s under traffic; nothing can be compared. "
            "See the engines' output with `fathom local logs`."
        )
    return rate


def slices(fleet: DemoFleet, seconds: float) -> Rate:
    """Measures a fleet at a depth, as soon as the depth is in force."""

    async def rate(depth: int | None) -> float:
        await fleet.pin(depth)
        return await rate_over(fleet, seconds)

    return rate


async def compare(
    rate: Rate,
    ours: int | None,
    theirs: int | None,
    *,
    enough: Callable[[Ratio], bool],
    limit_seconds: float,
    progress: Progress = lambda _: None,
    clock: Callable[[], float] = time.monotonic,
) -> Pairs:
    """Two depths in turn on the same pods, until the interval is enough or time is up.

    The order is ABBA, so that a drift cancels. At the limit the pair that has begun is finished;
    there are two pairs at least.
    """
    until_s = clock() + limit_seconds
    rates: dict[bool, list[float]] = {True: [], False: []}
    pairs = Pairs((), ())
    so_far = "no interval yet"
    while True:
        number = len(pairs.ours) + 1
        for first in (True, False) if number % 2 else (False, True):
            depth = ours if first else theirs
            name = "tuned" if depth is None else f"static {depth}"
            progress(f"pair {number}, {name}; so far {so_far}")
            rates[first].append(await rate(depth))
        pairs = Pairs(tuple(rates[True]), tuple(rates[False]))
        if number < _FIRST_LOOK_PAIRS:
            continue
        so_far = str(pairs.ratio)
        if enough(pairs.ratio) or clock() >= until_s:
            return pairs


async def sweep(
    fleet: DemoFleet, phase: Phase, depths: range, timing: DemoTiming, progress: Progress
) -> SweepResult:
    """Every static depth, up and down again, so that a drift cancels; traffic must be running."""
    rate = slices(fleet, timing.sweep_seconds)
    rates: dict[int, list[float]] = {depth: [] for depth in depths}
    for turn in range(timing.sweep_rounds):
        for depth in depths if turn % 2 == 0 else reversed(depths):
            progress(f"round {turn + 1}/{timing.sweep_rounds}: static {depth}")
            rates[depth].append(await rate(depth))
    return SweepResult(phase, {depth: sum(seen) / len(seen) for depth, seen in rates.items()})
