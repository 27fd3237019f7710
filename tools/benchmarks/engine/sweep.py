"""Static depths side by side on one engine: what the best depth of each kind of traffic is.

Run as `python -m benchmarks.engine.sweep [--simulated]`. Depth is changed live, and the depths
take turns in short slices, so that whatever else the machine does falls on all of them.
"""

import argparse
import asyncio
import itertools
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from local_cluster.engine.environment import ensure_engine_environment
from local_cluster.engine.language import TRAFFIC_CLASSES, TrafficClass
from local_cluster.engine.model_pair import ensure_model_pair
from local_cluster.engine.process import EngineProcess, real_setup, simulated_setup
from local_cluster.engine.scrape import EngineScrape, scrape
from local_cluster.engine.traffic import LoadGenerator, Phase
from local_cluster.paths import cache_dir

_IN_FORCE_TIMEOUT_S = 30.0
_SETTLE_S = 0.3


@dataclass(frozen=True, slots=True)
class SweepCell:
    """One depth under one kind of traffic.

    Attributes:
        tokens_per_second: the median over the slices, by the engine's own count.
        step_seconds: mean time of a decode step.
        acceptance_length: tokens per verified draft, 1 at depth 0.
    """

    traffic: str
    concurrency: int
    depth: int
    tokens_per_second: float
    step_seconds: float
    acceptance_length: float


@dataclass(frozen=True, slots=True)
class _Slice:
    seconds: float
    tokens: float
    steps: float
    step_seconds: float
    drafts: float
    accepted: float


async def sweep(
    engine: EngineProcess,
    load: LoadGenerator,
    traffic: TrafficClass,
    concurrency: int,
    depths: Sequence[int],
    *,
    generations: Iterator[int],
    rounds: int = 3,
    slice_seconds: float = 2.0,
) -> list[SweepCell]:
    """Measure each depth in `rounds` slices, in turns.

    Args:
        engine: with live depth.
        load: sends to it; whether a request failed is the caller's to judge.
        traffic: class of all requests.
        concurrency: requests in flight.
        depths: in the order of their turns.
        generations: for the depth documents, ascending.
        rounds: slices per depth.
        slice_seconds: length of each.

    Raises:
        TimeoutError: a depth did not come into force.
    """
    slices: dict[int, list[_Slice]] = {depth: [] for depth in depths}
    load.set_phase(Phase(traffic, concurrency, max_tokens=128))
    for _ in range(rounds):
        for depth in depths:
            generation = next(generations)
            engine.write_depth(generation, [[1, engine.setup.max_batch, depth]])
            await _in_force(engine.base_url, generation)
            await asyncio.sleep(_SETTLE_S)
            slices[depth].append(await _slice(engine.base_url, depth, slice_seconds))
    await load.stop()
    return [
        SweepCell(
            traffic=traffic.name,
            concurrency=concurrency,
            depth=depth,
            tokens_per_second=statistics.median(one.tokens / one.seconds for one in measured),
            step_seconds=_ratio(measured, "step_seconds", "steps"),
            acceptance_length=1 + _ratio(measured, "accepted", "drafts"),
        )
        for depth, measured in slices.items()
    ]


def _ratio(slices: Sequence[_Slice], above: str, below: str) -> float:
    total = sum(getattr(one, below) for one in slices)
    return sum(getattr(one, above) for one in slices) / total if total else 0.0


async def _in_force(base_url: str, generation: int) -> None:
    async with asyncio.timeout(_IN_FORCE_TIMEOUT_S):
        while (await scrape(base_url)).total("fathom_depth_generation") != generation:
            await asyncio.sleep(0.05)


async def _slice(base_url: str, depth: int, seconds: float) -> _Slice:
    before, began_at = await scrape(base_url), time.monotonic()
    await asyncio.sleep(seconds)
    after, ended_at = await scrape(base_url), time.monotonic()

    def gained(name: str, **labels: str) -> float:
        return _gained(before, after, name, depth, **labels)

    return _Slice(
        seconds=ended_at - began_at,
        tokens=gained("fathom_tokens_total"),
        steps=gained("fathom_steps_total", step="decode"),
        step_seconds=gained("fathom_step_seconds_total", step="decode"),
        drafts=gained("fathom_drafts_total"),
        accepted=gained("fathom_accepted_tokens_total"),
    )


def _gained(
    before: EngineScrape, after: EngineScrape, name: str, depth: int, **labels: str
) -> float:
    return after.total(name, depth=str(depth), **labels) - before.total(
        name, depth=str(depth), **labels
    )


def show(cells: Sequence[SweepCell], depths: Sequence[int]) -> Table:
    """A table with a row per kind of traffic; the best depth of each is marked."""
    table = Table(title="tokens/s by static depth (ms per step, tokens per draft)")
    table.add_column("traffic")
    table.add_column("concurrency", justify="right")
    for depth in depths:
        table.add_column(str(depth), justify="right")
    kinds = dict.fromkeys((cell.traffic, cell.concurrency) for cell in cells)
    for traffic, concurrency in kinds:
        row = [c for c in cells if (c.traffic, c.concurrency) == (traffic, concurrency)]
        best = max(row, key=lambda cell: cell.tokens_per_second)
        table.add_row(
            traffic,
            str(concurrency),
            *(
                f"{'[bold green]' if cell is best else ''}{cell.tokens_per_second:.0f}"
                f"\n{cell.step_seconds * 1000:.1f} ms\n{cell.acceptance_length:.2f}"
                for cell in row
            ),
        )
    return table


async def _sweep_all(engine: EngineProcess, depths: Sequence[int], rounds: int) -> list[SweepCell]:
    cells: list[SweepCell] = []
    generations = itertools.count(1)
    async with LoadGenerator(engine.base_url, engine.model) as load:
        for traffic in TRAFFIC_CLASSES.values():
            for concurrency in (1, 4, 8):
                cells += await sweep(
                    engine,
                    load,
                    traffic,
                    concurrency,
                    depths,
                    generations=generations,
                    rounds=rounds,
                )
    failed = [result.error for result in load.results if not result.ok]
    if failed:
        raise RuntimeError(f"{len(failed)} requests failed, the first with: {failed[0]}")
    return cells


def main() -> None:
    """Start an engine, sweep both classes at three concurrencies, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--simulated", action="store_true", help="sweep the simulated engine")
    parser.add_argument("--rounds", type=int, default=3, help="slices per depth")
    arguments = parser.parse_args()
    if arguments.simulated:
        setup = simulated_setup()
    else:
        environment = ensure_engine_environment()
        pair = ensure_model_pair(cache_dir(), environment / "bin" / "python")
        setup = real_setup(environment, pair)
    depths = range(setup.max_depth + 1)
    with (
        tempfile.TemporaryDirectory() as directory,
        EngineProcess(setup, Path(directory)) as engine,
    ):
        cells = asyncio.run(_sweep_all(engine, depths, arguments.rounds))
    Console(width=120).print(show(cells, depths))


if __name__ == "__main__":
    main()
