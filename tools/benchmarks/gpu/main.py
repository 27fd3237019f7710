"""`python -m benchmarks gpu`: depth changed under traffic, and each against an engine of it."""

import asyncio
import contextlib
import itertools
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console

from benchmarks.engine.main import ended_by_sigterm, engine_may_fail
from benchmarks.engine.meter import Generations, in_force
from benchmarks.engine.view import BenchView
from benchmarks.gpu.arms import (
    RenderedSetup,
    depths_of,
    in_directory,
    live_setup,
    single_setup,
)
from benchmarks.gpu.figures import DepthChange, TurnTimes, change_of, graph_cells, turn_times
from benchmarks.gpu.machine import Machine
from benchmarks.gpu.plan import ABBA, SETTLE_SECONDS, GpuBenchPlan, Side
from benchmarks.gpu.records import (
    GraphUse,
    read_graph_use,
    read_start_up,
    read_steps,
    step_count,
)
from benchmarks.gpu.report import CapturedGraphs, DepthComparison, GpuBenchReport, comparison
from fathom.adapters.completions import RequestResult
from fathom.engine.depth import DepthDocument, flat
from fathom_vllm.counts import read_counts
from local_cluster.engine.language import EASY, HARD
from local_cluster.engine.model_pair import ModelPair
from local_cluster.engine.process import EngineProcess, EngineProcessError
from local_cluster.engine.traffic import LoadGenerator, Phase
from local_cluster.errors import LocalClusterError

_POLL_S = 0.05
"""Between two looks at what came back; and between two changes while tokens are compared."""


@dataclass(frozen=True, slots=True)
class ProbedEngine:
    """A running engine, and what its probe writes."""

    name: str
    engine: EngineProcess
    directory: Path
    ready_seconds: float

    def graph_use(self) -> GraphUse:
        """So far."""
        return read_graph_use(self.directory)

    def captured(self) -> CapturedGraphs:
        """At its start. It has to have made a step."""
        use = self.graph_use()
        return CapturedGraphs(
            engine=self.name,
            runner=use.runner,
            mode=use.mode,
            sizes=use.sizes,
            graphs=use.captured,
            ready_seconds=self.ready_seconds,
            start_up=read_start_up(self.engine.log_path.read_text(errors="replace")),
            arguments=tuple(self.engine.setup.arguments(self.engine.port)),
        )


@dataclass(slots=True)
class _GpuBench:
    """What all parts share, and what they found."""

    plan: GpuBenchPlan
    depths: tuple[int, ...]
    view: BenchView
    generations: Generations = field(default_factory=Generations)
    results: list[RequestResult] = field(default_factory=list)
    without_speculation: int = 0
    comparisons: list[DepthComparison] = field(default_factory=list)
    engines: list[CapturedGraphs] = field(default_factory=list)


def run_bench(
    console: Console, machine: Machine, pair: ModelPair, plan: GpuBenchPlan, *, quick: bool
) -> GpuBenchReport:
    """Run it all. Leaves no process behind, however it ends.

    Raises:
        LocalClusterError: an engine does not start, or does not do as it should.
    """
    depths = depths_of(machine, pair)
    view = BenchView(console, plan.total_seconds(depths))
    bench = _GpuBench(plan, depths, view)
    with contextlib.ExitStack() as stack:
        stack.enter_context(ended_by_sigterm())
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fathom-bench-")))
        stack.enter_context(view)
        live = stack.enter_context(
            _started(bench, "live", live_setup(machine, pair), directory / "live")
        )
        with engine_may_fail(live.engine):
            asyncio.run(_warmed(bench, live))
            changes, use = asyncio.run(_changes(bench, live))
        bench.engines.append(live.captured())
        for depth in depths:
            name = f"depth {depth}" if depth else "no speculation"
            setup = single_setup(machine, pair, depth)
            with (
                _started(bench, name, setup, directory / f"single-{depth}") as single,
                engine_may_fail(live.engine),
                engine_may_fail(single.engine),
            ):
                asyncio.run(_warmed(bench, single))
                if not depth:
                    asyncio.run(_same_tokens(bench, live, single))
                asyncio.run(_compared(bench, live, single, depth))
                bench.engines.append(single.captured())
        counts = read_counts(str(live.engine.counters_path))
    wrong = [result for result in bench.results if not result.ok]
    return GpuBenchReport(
        machine=machine.name,
        gpu=bool(machine.gpu),
        quick=quick,
        depths=depths,
        requests=len(bench.results),
        requests_wrong=len(wrong),
        requests_without_speculation=bench.without_speculation,
        first_error=wrong[0].error if wrong else "",
        changes=tuple(changes),
        hook_errors=int(counts.errors) if counts else 0,
        graphs=graph_cells(use),
        full_replays=use.replays,
        engines=tuple(bench.engines),
        comparisons=tuple(bench.comparisons),
    )


@contextlib.contextmanager
def _started(
    bench: _GpuBench, name: str, setup: RenderedSetup, directory: Path
) -> Iterator[ProbedEngine]:
    bench.view.say(f"starting an engine: {name}")
    directory.mkdir()
    process = EngineProcess(in_directory(setup, directory), directory)
    began_s = time.monotonic()
    try:
        process.start(bench.plan.start_timeout_seconds)
    except EngineProcessError as error:
        raise LocalClusterError(f"The engine ({name}) did not start: {error}") from error
    try:
        yield ProbedEngine(name, process, directory, time.monotonic() - began_s)
    finally:
        process.stop()


@contextlib.asynccontextmanager
async def _traffic(bench: _GpuBench, arm: ProbedEngine) -> AsyncIterator[LoadGenerator]:
    async with LoadGenerator(arm.engine.base_url, arm.engine.model) as load:
        try:
            yield load
        finally:
            await load.stop()
            bench.results += load.results
            if not arm.engine.setup.depth:
                bench.without_speculation += len(load.results)


async def _warmed(bench: _GpuBench, arm: ProbedEngine) -> None:
    """Requests at the largest batch: the first ones have vLLM compile more kernels."""
    batch = max(bench.plan.batches)
    async with _traffic(bench, arm) as load:
        load.set_phase(Phase(HARD, concurrency=batch, max_tokens=bench.plan.max_tokens))
        while len(load.results) < batch:
            await asyncio.sleep(_POLL_S)


def _write(bench: _GpuBench, live: ProbedEngine, depth: int) -> tuple[int, float]:
    """Ask for a depth; the document's generation, and when it lay there."""
    document = DepthDocument(
        generation=next(bench.generations), schedule=flat(depth, live.engine.setup.max_batch)
    )
    live.engine.write_depth_text(document.to_json())
    return document.generation, time.perf_counter()


async def _changes(bench: _GpuBench, live: ProbedEngine) -> tuple[list[DepthChange], GraphUse]:
    """Each depth in turn under traffic at each batch; what came of it, and the graphs meanwhile."""
    plan, found = bench.plan, list[DepthChange]()
    before: GraphUse | None = None
    async with _traffic(bench, live) as load:
        for batch in plan.batches:
            bench.view.say(f"depth changes with {batch} requests in flight")
            load.set_phase(Phase(HARD, concurrency=batch, max_tokens=plan.max_tokens))
            await asyncio.sleep(SETTLE_SECONDS)
            before = before or live.graph_use()
            for _ in range(plan.change_rounds):
                for depth in reversed(bench.depths):
                    bench.view.doing(f"{batch} in flight, depth {depth}")
                    first = step_count(live.directory)
                    _, written_at_s = _write(bench, live, depth)
                    await asyncio.sleep(plan.change_seconds)
                    steps = read_steps(live.directory, first)
                    found.append(change_of(batch, depth, written_at_s, steps))
                    bench.view.advance(plan.change_seconds)
    after = live.graph_use()
    return found, after if before is None else after.since(before)


async def _same_tokens(bench: _GpuBench, live: ProbedEngine, without: ProbedEngine) -> None:
    """The same kinds of requests with depth changing all the time, and without speculation."""
    bench.view.say("tokens: depth changes all the time, beside no speculation")
    for arm in (live, without):
        async with _traffic(bench, arm) as load:
            for traffic in (EASY, HARD):
                phase = Phase(traffic, concurrency=4, max_tokens=bench.plan.max_tokens)
                enough = len(load.results) + bench.plan.requests // 2
                load.set_phase(phase)
                for number in itertools.count():
                    if len(load.results) >= enough:
                        break
                    if arm is live:
                        _write(bench, live, bench.depths[number % len(bench.depths)])
                    await asyncio.sleep(_POLL_S)


async def _compared(bench: _GpuBench, live: ProbedEngine, single: ProbedEngine, depth: int) -> None:
    """Both engines in turns at each batch; the one that has no turn is idle."""
    plan = bench.plan
    await _held(bench, live, depth)
    for batch in plan.batches:
        bench.view.say(f"depth {depth}, {batch} requests in flight: live beside {single.name}")
        times: dict[Side, list[TurnTimes | None]] = {"live": [], "single": []}
        for side in ABBA * plan.turn_rounds:
            arm = live if side == "live" else single
            bench.view.doing(f"depth {depth}, {batch} in flight: {arm.name}")
            async with _traffic(bench, arm) as load:
                load.set_phase(Phase(HARD, concurrency=batch, max_tokens=plan.max_tokens))
                await asyncio.sleep(SETTLE_SECONDS)
                first = step_count(arm.directory)
                await asyncio.sleep(plan.turn_seconds)
                steps = read_steps(arm.directory, first)
            times[side].append(turn_times(steps, batch, depth))
            bench.view.advance(plan.whole_turn_seconds)
        bench.comparisons.append(comparison(batch, depth, times["live"], times["single"]))


async def _held(bench: _GpuBench, live: ProbedEngine, depth: int) -> None:
    async with _traffic(bench, live) as load:
        load.set_phase(Phase(HARD, concurrency=1, max_tokens=bench.plan.max_tokens))
        generation, _ = _write(bench, live, depth)
        await in_force(live.engine, generation)
