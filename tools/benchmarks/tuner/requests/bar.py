"""The best schedule by batch, in hindsight: what a tuner that knew the world would have written."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, log2
from typing import Final

from benchmarks.tuner.requests.engine import RequestEngine
from benchmarks.tuner.requests.fleet import engines
from benchmarks.tuner.requests.world import RequestWorld

_LEAST_SHARE: Final = 0.02
"""Share of the busy time: with less, the depth of a range of batches is not tried."""


@dataclass(frozen=True, slots=True)
class Ran:
    """A whole world at a schedule."""

    depths: tuple[int, ...]
    """By range of batches: 1, 2, to 4, to 8 and so on."""
    finished_tokens: int
    busy_s: Mapping[int, float]
    """By range."""


def best_schedule(world: RequestWorld, seed: int, at_tokens: Ran) -> Ran:
    """The best static depth; then, range by range, whatever is better than that.

    The range in which engines are busy longest comes first. All schedules would be too many: this
    finds the best one where a depth in one range changes little of what is best in another.

    Args:
        world: what is run.
        seed: of its draws.
        at_tokens: the same at the user's own depth, which has run already.
    """
    allowed = world.fleet.allowed
    statics = [
        at_tokens if depth == world.fleet.tokens else ran(world, seed, at_one_depth(world, depth))
        for depth in allowed
    ]
    best = max(statics, key=lambda each: each.finished_tokens)
    busy_s = best.busy_s
    busiest = sorted(busy_s, key=lambda each: -busy_s[each])
    for changed in busiest:
        if busy_s[changed] < _LEAST_SHARE * sum(busy_s.values()):
            break
        for depth in set(allowed) - {best.depths[changed]}:
            depths = (*best.depths[:changed], depth, *best.depths[changed + 1 :])
            best = max(best, ran(world, seed, depths), key=lambda each: each.finished_tokens)
    return best


def ran(world: RequestWorld, seed: int, depths: tuple[int, ...]) -> Ran:
    """Run a world at a schedule, all pods alike."""
    running = engines(world, seed, world.fleet.tokens)
    for engine in running:
        engine.table = [depths[_range(batch)] for batch in range(world.engine.max_batch + 1)]
        engine.advance(3600 * world.fleet.hours)
    return outcome(depths, running)


def at_one_depth(world: RequestWorld, depth: int) -> tuple[int, ...]:
    """A schedule with the same depth in every range."""
    return (depth,) * (_range(world.engine.max_batch) + 1)


def outcome(depths: tuple[int, ...], running: Sequence[RequestEngine]) -> Ran:
    """What came of engines at a schedule."""
    busy_s: dict[int, float] = {}
    for engine in running:
        for cell, counts in engine.counters().cells.items():
            of = _range(cell.batch_le)
            busy_s[of] = busy_s.get(of, 0.0) + counts.step_seconds
    return Ran(depths, sum(each.served.finished_tokens for each in running), busy_s)


def _range(batch: int) -> int:
    return ceil(log2(batch)) if batch else 0
