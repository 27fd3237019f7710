"""What a decode step computes where CUDA graphs are captured, by vLLM's rule.

Which graph a step gets is told by the operator's own model of vLLM
(`fathom.engine.cuda_graphs`), which vLLM's code confirms. What it costs to have none is an
estimate.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from benchmarks.tuner.worlds.parts import DEEPEST, FleetPart, GraphsPart
from fathom.engine.cuda_graphs import GraphMode, Graphs, Replayed, default_sizes
from fathom.engine.depth import DepthRange, Schedule, depth_at
from fathom.engine.depth_set import capture_sizes, startup_schedule

Floats = NDArray[np.float64]
SLOWER: Final = {Replayed.FULL: 1.0, Replayed.PIECEWISE: 1.16, Replayed.NONE: 1.3}
"""Factor on the time of a step, by what it gets. Piecewise: as others measured it (vLLM issues
49547 and 49548). Without any graph: an assumption, that it is about as much again."""


@dataclass(frozen=True, slots=True)
class Steps:
    """Shape (max_batch + 1, DEEPEST + 1) each; row 0 is unused."""

    tokens: Floats
    """That a step computes, after padding."""
    slower: Floats
    """Factor on its time."""

    @classmethod
    def of(cls, graphs: Iterable[Graphs], max_batch: int) -> Self:
        """The steps of one engine for each depth."""
        tokens = np.zeros((max_batch + 1, DEEPEST + 1))
        slower = np.ones_like(tokens)
        for depth, engine in enumerate(graphs):
            for batch in range(1, max_batch + 1):
                tokens[batch, depth] = padded(engine, batch, depth)
                slower[batch, depth] = SLOWER[engine.replayed(batch, depth)]
        return cls(tokens, slower)


def padded(graphs: Graphs, batch: int, depth: int) -> int:
    """Tokens that a step of `batch` decodes computes, each of which verifies `depth` drafts."""
    length = depth + 1
    tokens = batch * length
    match graphs.replayed(batch, depth):
        case Replayed.FULL:
            # Full graphs hold whole requests: each size is rounded up to them.
            size = graphs.sizes[bisect_right(graphs.sizes, tokens - length)]
            return -(-size // length) * length
        case Replayed.PIECEWISE:
            return graphs.sizes[bisect_left(graphs.sizes, tokens)]
        case Replayed.NONE:
            return tokens


def steps(fleet: FleetPart, graphs: GraphsPart) -> Steps:
    """Those of the fleet's engines."""
    named, most = fleet.named, fleet.max_batch
    deepest = fleet.tokens if graphs.depths == "tokens" else fleet.max_tokens
    schedule = startup_schedule(named, most)
    # None of the operator's own where depths share no grid: vLLM chooses, as it does without.
    sizes = capture_sizes(named, most, graphs.ceiling) if graphs.sizes == "grid" else ()
    vllm_sizes = _vllm_sizes(schedule, deepest, graphs.ceiling)
    engine = _engine(sizes or vllm_sizes, schedule, deepest)
    return Steps.of([engine] * (DEEPEST + 1), most)


def steps_alone(fleet: FleetPart, graphs: GraphsPart) -> Steps:
    """Those of engines that name one depth each, and capture what vLLM chooses for it."""

    def alone(depth: int) -> Graphs:
        schedule = (DepthRange(1, fleet.max_batch, depth),)
        return _engine(_vllm_sizes(schedule, depth, graphs.ceiling), schedule, depth)

    return Steps.of(map(alone, range(DEEPEST + 1)), fleet.max_batch)


def _engine(sizes: tuple[int, ...], schedule: Schedule, deepest: int) -> Graphs:
    return Graphs(
        mode=GraphMode.FULL_AND_PIECEWISE,
        sizes=sizes,
        max_num_seqs=schedule[-1].last,
        depths=frozenset(part.depth for part in schedule),
        deepest=deepest,
    )


def _vllm_sizes(schedule: Schedule, deepest: int, ceiling: int) -> tuple[int, ...]:
    batches = range(1, schedule[-1].last + 1)
    return default_sizes(
        [depth_at(schedule, batch) for batch in batches],
        deepest,
        ceiling=ceiling,
    )
