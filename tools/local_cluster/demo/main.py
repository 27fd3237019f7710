"""`fathom local demo`: the whole loop on this machine, live depth against static depth."""

import asyncio
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from rich.console import Console

from fathom.engine.depth import depth_at
from local_cluster.cluster import LocalCluster
from local_cluster.demo import measure, verdict
from local_cluster.demo.fleet import DemoFleet
from local_cluster.demo.observe import observe
from local_cluster.demo.page import save_page
from local_cluster.demo.phases import PHASES, DemoTiming
from local_cluster.demo.plot import write_plot
from local_cluster.demo.stage import set_stage
from local_cluster.demo.view import (
    DemoView,
    claim_lines,
    summary_table,
    sweep_table,
)
from local_cluster.engine.traffic import LoadGenerator, Phase
from local_cluster.images import Image

CLUSTER: Final = "demo"


@dataclass(frozen=True, slots=True)
class DemoFiles:
    """What is written at the end; None: it is not."""

    plot: Path | None = None
    """The result as a picture."""
    page: Path | None = None
    """The operator's page of the resource."""


def run_demo(
    console: Console,
    timing: DemoTiming,
    images: Sequence[Image] = (),
    files: DemoFiles = DemoFiles(),
) -> verdict.DemoOutcome:
    """Run it all, and say what came of it.

    Args:
        console: to show it on.
        timing: how long each part takes.
        images: that the nodes have.
        files: what to write besides.

    Raises:
        LocalClusterError: the cluster, the operator or the engines did not come up, or ended.
        asyncio.CancelledError: SIGTERM or SIGHUP arrived; the cluster is gone, as at any end.
    """
    return asyncio.run(_run(console, timing, images, files))


async def _run(
    console: Console,
    timing: DemoTiming,
    images: Sequence[Image],
    files: DemoFiles,
) -> verdict.DemoOutcome:
    if (task := asyncio.current_task()) is not None:
        for number in (signal.SIGTERM, signal.SIGHUP):
            asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    with DemoView(console) as view:
        view.say("starting a cluster with two GB200 trays (simulated) on this machine")
        async with (
            LocalCluster.start(CLUSTER, images=images) as cluster,
            set_stage(cluster, view.say) as stage,
        ):
            return await _play(stage.fleet, view, console, timing, files)


async def _play(
    fleet: DemoFleet,
    view: DemoView,
    console: Console,
    timing: DemoTiming,
    files: DemoFiles,
) -> verdict.DemoOutcome:
    spec = (await fleet.resource())["spec"]
    static_depth: int = spec["speculation"]["tokens"]
    deepest: int = spec["speculation"]["maxTokens"]
    async with (
        LoadGenerator(await fleet.service_url(), spec["model"]["id"]) as load,
        _observed(fleet, view),
    ):
        play = _Play(fleet, view, load, timing)
        results: list[measure.PhaseResult] = []
        for phase in PHASES:
            results.append(await play.phase(phase, static_depth, verdict.bounds_to_decide(results)))
        sweeps = [await play.sweep(phase, range(1, deepest + 1)) for phase in PHASES]
        mixup = await play.mixup(verdict.worst_mixup(sweeps))
        await fleet.pin(None)
        await load.stop()
        served = await _served(fleet, load)
    claims = verdict.claims(results, mixup, served)
    ended = verdict.outcome(claims)
    console.print(sweep_table(sweeps))
    console.print(summary_table(results, sweeps, static_depth))
    console.print(claim_lines(claims))
    if files.plot is not None:
        write_plot(results, sweeps, static_depth, files.plot)
        console.print(f"Written: {files.plot}")
    if files.page is not None:
        console.print(await save_page(fleet, files.page), soft_wrap=True, highlight=False)
    noisiest = max(pairs.scatter for pairs in (*(each.pairs for each in results), mixup.pairs))
    console.print(verdict.last_word(ended, noisiest), soft_wrap=True, highlight=False)
    return ended


@asynccontextmanager
async def _observed(fleet: DemoFleet, view: DemoView) -> AsyncIterator[None]:
    """Shows the fleet meanwhile. What fails within comes out as it is, not as a group."""
    watching = asyncio.create_task(observe(fleet, view.frame))
    try:
        yield
    finally:
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching


@dataclass(frozen=True, slots=True)
class _Play:
    """The parts of the demo, on one fleet."""

    fleet: DemoFleet
    view: DemoView
    load: LoadGenerator
    timing: DemoTiming

    async def phase(
        self, phase: Phase, static_depth: int, bounds: tuple[float, ...]
    ) -> measure.PhaseResult:
        """The tuner against a static depth, until the bounds are decided."""
        self._traffic(phase)
        self.view.doing(f"the tuner adapts, {self.timing.adapt_seconds:.0f} s")
        await asyncio.sleep(self.timing.adapt_seconds)
        pairs = await self._compare(None, static_depth, bounds)
        self.view.say(
            f"tuned / static {static_depth}: [bold]{pairs.ratio}[/bold] "
            f"({pairs.ratio.pairs} pairs of slices)"
        )
        await self.fleet.pin(None)
        batch = max(1, round(phase.concurrency / len(await self.fleet.pods())))
        return measure.PhaseResult(
            phase, depth_at((await self.fleet.document()).schedule, batch), pairs
        )

    async def sweep(self, phase: Phase, depths: range) -> measure.SweepResult:
        """A short look at every static depth."""
        self._traffic(phase)
        await asyncio.sleep(self.timing.settle_seconds)
        return await measure.sweep(self.fleet, phase, depths, self.timing, self.view.doing)

    async def mixup(self, mixup: verdict.Mixup) -> verdict.MixupResult:
        """What it costs to have another phase's depth, until that is decided."""
        wrong, right = mixup.there.best, mixup.here.best
        self._traffic(mixup.here.phase)
        await asyncio.sleep(self.timing.settle_seconds)
        pairs = await self._compare(wrong, right, (verdict.WRONG_DEPTH_BELOW,))
        self.view.say(f"static {wrong} / static {right}: [bold]{pairs.ratio}[/bold]")
        return verdict.MixupResult(mixup, pairs)

    def _traffic(self, phase: Phase) -> None:
        self.view.phase(phase)
        self.load.set_phase(phase)

    async def _compare(
        self, ours: int | None, theirs: int, bounds: tuple[float, ...]
    ) -> measure.Pairs:
        return await measure.compare(
            measure.slices(self.fleet, self.timing.slice_seconds),
            ours,
            theirs,
            enough=partial(verdict.is_decided, bounds=bounds),
            limit_seconds=self.timing.limit_seconds,
            progress=self.view.doing,
        )


async def _served(fleet: DemoFleet, load: LoadGenerator) -> verdict.Served:
    failed = [result for result in load.results if not result.ok]
    return verdict.Served(
        requests=len(load.results),
        failed=len(failed),
        first_error=failed[0].error if failed else "",
        restarts=sum(pod.restarts for pod in await fleet.pods()),
    )
