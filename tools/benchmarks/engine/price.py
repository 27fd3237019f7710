"""What being tunable costs: mode Static's own command against the tunable engine held still.

Both engines stand on one processor, and take turns on it in the order ABBA: a drift of the machine
cancels, and the idle one does not step. What it uses all the same is part of the report.
"""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from benchmarks.engine.meter import Generations, in_force
from benchmarks.engine.timing import PRICE_TRAFFIC, EngineBenchTiming
from benchmarks.engine.view import BenchView
from fathom.engine.depth import DepthDocument, flat
from local_cluster.demo.compare import Ratio, paired_ratio
from local_cluster.engine.process import EngineProcess
from local_cluster.engine.scrape import EngineScrape, scrape
from local_cluster.engine.traffic import LoadGenerator

STEPS: Final = "vllm:iteration_tokens_total_count"
"""vLLM observes it once a step, with hooks or without."""
_ABBA: Final[tuple[Literal["static", "tunable"], ...]] = ("static", "tunable", "tunable", "static")
_MOST_TIMES_LONGER: Final = 2.0
"""A machine so slow that the steps do not come together in time ends with the steps it has."""


@dataclass(frozen=True, slots=True)
class PriceSlice:
    """What one engine did while the other was idle."""

    seconds: float
    steps: float
    tokens: float
    hook_seconds: float
    """Inside the hooks; 0 where there are none."""
    busy_seconds: float
    """Seconds of steps, by the hooks' own count; 0 where there are none."""
    idle_cpu_seconds: float
    """Processor time that the other engine used meanwhile."""


@dataclass(frozen=True, slots=True)
class Price:
    """The paired ratios are tunable over static: below 1 is what it costs."""

    static_steps: float
    tunable_steps: float
    steps_ratio: Ratio
    """Ratio of steps per second."""
    tokens_ratio: Ratio
    """Ratio of tokens per second."""
    hook_overhead_percent: float
    """Time inside the hooks over step time, over all of the tunable engine's steps."""
    idle_cpu_percent: float
    """Processor time of the engine that had no turn."""


def price_of(static: Sequence[PriceSlice], tunable: Sequence[PriceSlice]) -> Price:
    """Judge slices that were taken in turns, the n-th of one beside the n-th of the other.

    Raises:
        ValueError: fewer than two pairs, or an engine that did nothing.
    """
    both = (*static, *tunable)
    return Price(
        static_steps=sum(each.steps for each in static),
        tunable_steps=sum(each.steps for each in tunable),
        steps_ratio=paired_ratio(
            [each.steps / each.seconds for each in tunable],
            [each.steps / each.seconds for each in static],
        ),
        tokens_ratio=paired_ratio(
            [each.tokens / each.seconds for each in tunable],
            [each.tokens / each.seconds for each in static],
        ),
        hook_overhead_percent=100
        * sum(each.hook_seconds for each in tunable)
        / sum(each.busy_seconds for each in tunable),
        idle_cpu_percent=100
        * sum(each.idle_cpu_seconds for each in both)
        / sum(each.seconds for each in both),
    )


@dataclass(frozen=True, slots=True)
class PricedEngine:
    """One of the two engines, and what sends to it."""

    engine: EngineProcess
    load: LoadGenerator


async def measure_price(
    static: PricedEngine,
    tunable: PricedEngine,
    generations: Generations,
    timing: EngineBenchTiming,
    view: BenchView,
) -> Price:
    """Alternate the engines until both have made `timing.price_steps` steps.

    Raises:
        LocalClusterError: the tunable engine does not take the depth.
    """
    await _hold(tunable, static.engine.setup.depth, generations)
    slices: dict[str, list[PriceSlice]] = {"static": [], "tunable": []}
    ends_at_s = time.monotonic() + _MOST_TIMES_LONGER * timing.price_seconds
    while not _enough(slices, timing.price_steps) and time.monotonic() < ends_at_s:
        for name in _ABBA:
            view.doing(f"price: the {name} engine")
            side, idle = (static, tunable) if name == "static" else (tunable, static)
            slices[name].append(await _slice(side, idle.engine, timing))
            steps = min(sum(each.steps for each in done) for done in slices.values())
            view.reached(timing.price_seconds, steps / timing.price_steps)
    return price_of(slices["static"], slices["tunable"])


def _enough(slices: dict[str, list[PriceSlice]], steps: int) -> bool:
    return all(sum(each.steps for each in done) >= steps for done in slices.values())


async def _hold(side: PricedEngine, depth: int, generations: Generations) -> None:
    document = DepthDocument(
        generation=next(generations), schedule=flat(depth, side.engine.setup.max_batch)
    )
    side.engine.write_depth_text(document.to_json())
    side.load.set_phase(PRICE_TRAFFIC)
    await in_force(side.engine, document.generation)
    await side.load.stop()


async def _slice(side: PricedEngine, idle: EngineProcess, timing: EngineBenchTiming) -> PriceSlice:
    side.load.set_phase(PRICE_TRAFFIC)
    await asyncio.sleep(timing.price_rest_seconds)
    idle_before = idle.cpu_seconds()
    before, began_at = await scrape(side.engine.base_url), time.monotonic()
    await asyncio.sleep(timing.price_slice_seconds)
    after, ended_at = await scrape(side.engine.base_url), time.monotonic()
    idle_after = idle.cpu_seconds()
    await side.load.stop()
    return PriceSlice(
        seconds=ended_at - began_at,
        steps=_gained(before, after, STEPS),
        tokens=_gained(before, after, "vllm:generation_tokens_total"),
        hook_seconds=_gained(before, after, "fathom_hook_seconds_total"),
        busy_seconds=_gained(before, after, "fathom_step_seconds_total"),
        idle_cpu_seconds=idle_after - idle_before,
    )


def _gained(before: EngineScrape, after: EngineScrape, name: str) -> float:
    return after.total(name) - before.total(name)
