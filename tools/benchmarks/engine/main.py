"""`python -m benchmarks engine`: sweep, trace and price, one after the other."""

import asyncio
import contextlib
import os
import signal
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Final

import aiohttp
from rich.console import Console

from benchmarks.engine.arms import StaticArms, TunerArm, settings_for
from benchmarks.engine.clocks import MonotonicClock, PausableClock
from benchmarks.engine.meter import Generations, Meter
from benchmarks.engine.price import Price, PricedEngine, measure_price
from benchmarks.engine.processors import running_on, split
from benchmarks.engine.report import BenchReport, phase_report, trace_report
from benchmarks.engine.sweep import SweepCell, sweep
from benchmarks.engine.timing import EngineBenchTiming
from benchmarks.engine.trace import Arms, PhaseRun, run_trace
from benchmarks.engine.view import BenchView
from fathom.adapters.completions import RequestResult
from local_cluster.engine.language import TRAFFIC_CLASSES
from local_cluster.engine.process import EngineProcess, EngineProcessError, EngineSetup, Part
from local_cluster.engine.traffic import LoadGenerator
from local_cluster.errors import LocalClusterError

_TERMINATED: Final = 128 + signal.SIGTERM


@dataclass(slots=True)
class _EngineBench:
    """What all parts share."""

    engine: EngineProcess
    """The tunable one."""
    timing: EngineBenchTiming
    view: BenchView
    generations: Generations
    results: list[RequestResult]
    """Every request of every part."""

    @property
    def depths(self) -> Sequence[int]:
        return range(self.engine.setup.max_depth + 1)


def run_bench(
    console: Console, setup: EngineSetup, timing: EngineBenchTiming, *, engine: str, quick: bool
) -> BenchReport:
    """Run it all. Leaves no process behind, however it ends.

    Args:
        console: where progress is shown.
        setup: the tunable engine; the static one is the same without what makes it tunable.
        timing: how long each part takes.
        engine: what the report calls the engine.
        quick: whether the report is to say that its numbers mean little.

    Raises:
        LocalClusterError: an engine does not start, or does not do as it should.
    """
    view = BenchView(console, timing.total_seconds(setup.max_depth + 1))
    engines, ours = split(os.sched_getaffinity(0))
    static_setup = replace(setup, part=Part.NOTHING)
    with contextlib.ExitStack() as stack:
        stack.enter_context(ended_by_sigterm())
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fathom-bench-")))
        stack.enter_context(view)
        stack.enter_context(running_on(ours))
        view.say(f"starting {engine} on a processor of its own")
        tunable = stack.enter_context(started(setup, directory / "tunable", engines))
        bench = _EngineBench(tunable, timing, view, Generations(), [])
        with engine_may_fail(tunable):
            cells, runs = asyncio.run(_sweep_and_trace(bench))
        view.say("[bold]price[/bold]: starting the same engine with mode Static's command")
        static = stack.enter_context(started(static_setup, directory / "static", engines))
        with engine_may_fail(static), engine_may_fail(tunable):
            price = asyncio.run(_price(bench, static))
        return _report(bench, cells, runs, price, engine=engine, quick=quick)


@contextlib.contextmanager
def started(
    setup: EngineSetup, directory: Path, processors: frozenset[int]
) -> Iterator[EngineProcess]:
    """A running engine on these processors.

    Raises:
        LocalClusterError: it does not start.
    """
    process = EngineProcess(setup, directory)
    try:
        with running_on(processors):
            process.start()
    except EngineProcessError as error:
        raise LocalClusterError(str(error)) from error
    try:
        yield process
    finally:
        process.stop()


@contextlib.contextmanager
def engine_may_fail(engine: EngineProcess) -> Iterator[None]:
    """An engine that ended is the cause of whatever failed, and its log says more."""
    try:
        yield
    except (aiohttp.ClientError, TimeoutError) as error:
        if engine.running:
            raise
        raise LocalClusterError(
            f"The engine ended in the middle of the benchmark. The end of its log:\n"
            f"{engine.log_tail(15)}"
        ) from error


@contextlib.contextmanager
def ended_by_sigterm() -> Iterator[None]:
    """SIGTERM as an exception, so that what was started is ended."""

    def end(_: int, __: FrameType | None) -> None:
        raise SystemExit(_TERMINATED)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


async def _sweep_and_trace(bench: _EngineBench) -> tuple[list[SweepCell], list[PhaseRun]]:
    async with (
        LoadGenerator(bench.engine.base_url, bench.engine.model) as load,
        aiohttp.ClientSession() as http,
    ):
        try:
            return await _sweep(bench, load), await _trace(bench, load, http)
        finally:
            bench.results += load.results


async def _sweep(bench: _EngineBench, load: LoadGenerator) -> list[SweepCell]:
    timing, cells = bench.timing, list[SweepCell]()
    for traffic in TRAFFIC_CLASSES.values():
        for concurrency in timing.sweep_concurrencies:
            what = f"sweep: {traffic.name} × {concurrency}"
            bench.view.say(what)
            bench.view.doing(what)
            cells += await sweep(
                bench.engine,
                load,
                traffic,
                concurrency,
                bench.depths,
                generations=bench.generations,
                rounds=timing.sweep_rounds,
                slice_seconds=timing.sweep_slice_seconds,
            )
            bench.view.advance(timing.sweep_seconds(len(bench.depths)))
    return cells


async def _trace(
    bench: _EngineBench, load: LoadGenerator, http: aiohttp.ClientSession
) -> list[PhaseRun]:
    engine, generations = bench.engine, bench.generations
    clock = PausableClock(time.time())
    settings = settings_for(engine.setup, bench.timing.window_seconds)
    arms = Arms(
        tuner=TunerArm(engine, Meter(engine, http, clock), clock, generations, settings),
        clock=clock,
        static=StaticArms(engine, Meter(engine, http, MonotonicClock()), generations),
        depths=bench.depths,
    )
    return await run_trace(load, arms, bench.timing, bench.view)


async def _price(bench: _EngineBench, static: EngineProcess) -> Price:
    async with (
        LoadGenerator(static.base_url, static.model, seed=1) as to_static,
        LoadGenerator(bench.engine.base_url, bench.engine.model, seed=2) as to_tunable,
    ):
        try:
            return await measure_price(
                PricedEngine(static, to_static),
                PricedEngine(bench.engine, to_tunable),
                bench.generations,
                bench.timing,
                bench.view,
            )
        finally:
            bench.results += to_static.results + to_tunable.results


def _report(
    bench: _EngineBench,
    cells: Sequence[SweepCell],
    runs: Sequence[PhaseRun],
    price: Price,
    *,
    engine: str,
    quick: bool,
) -> BenchReport:
    phases = tuple(phase_report(run) for run in runs)
    trace = trace_report(runs)
    lost = [result for result in bench.results if not result.ok]
    return BenchReport(
        worst_phase_ratio=min(phase.ratio_to_best.estimate for phase in phases),
        ratio_to_best_single_static=trace.ratios[trace.best_single_depth].estimate,
        requests_lost=len(lost),
        hook_overhead_percent=price.hook_overhead_percent,
        engine=engine,
        quick=quick,
        requests=len(bench.results),
        first_error=lost[0].error if lost else "",
        user_depth=bench.engine.setup.depth,
        minutes=bench.view.minutes,
        sweep=tuple(cells),
        phases=phases,
        trace=trace,
        price=price,
    )
