"""`fathom local demo`: the whole loop on this machine, live depth against static depth."""

import asyncio
from collections.abc import Sequence
from typing import Final

from rich.console import Console

from fathom_local.cluster import LocalCluster
from fathom_local.demo import measure, verdict
from fathom_local.demo.fleet import Fleet
from fathom_local.demo.observe import observe
from fathom_local.demo.phases import PHASES, Timing
from fathom_local.demo.stage import set_stage
from fathom_local.demo.view import (
    DemoView,
    claim_lines,
    summary_table,
    sweep_table,
)
from fathom_local.engine.traffic import LoadGenerator
from fathom_local.images import Image

CLUSTER: Final = "demo"


def run_demo(console: Console, timing: Timing, images: Sequence[Image] = ()) -> bool:
    """Run it all; returns whether everything that it claims held.

    Raises:
        LocalClusterError: the cluster, the operator or the engines did not come up.
    """
    return asyncio.run(_run(console, timing, images))


async def _run(console: Console, timing: Timing, images: Sequence[Image]) -> bool:
    with DemoView(console) as view:
        view.say("starting a cluster with two GB200 trays (pretended) on this machine")
        async with (
            LocalCluster.start(CLUSTER, images=images) as cluster,
            set_stage(cluster, view.say) as stage,
        ):
            return await _play(stage.fleet, view, console, timing)


async def _play(fleet: Fleet, view: DemoView, console: Console, timing: Timing) -> bool:
    spec = (await fleet.resource())["spec"]
    static_depth: int = spec["speculation"]["tokens"]
    deepest: int = spec["speculation"]["maxTokens"]
    async with (
        LoadGenerator(await fleet.service_url(), spec["model"]["id"]) as load,
        asyncio.TaskGroup() as tasks,
    ):
        watching = tasks.create_task(observe(fleet, view.frame))
        results = []
        for phase in PHASES:
            view.phase(phase)
            load.set_phase(phase)
            view.doing(f"the tuner adapts, {timing.adapt_seconds:.0f} s")
            await asyncio.sleep(timing.adapt_seconds)
            result = await measure.compare(fleet, phase, static_depth, timing, view.doing)
            view.say(f"tuned / static {static_depth}: [bold]{result.ratio}[/bold]")
            results.append(result)
        sweeps = []
        for phase in PHASES:
            view.phase(phase)
            load.set_phase(phase)
            await asyncio.sleep(timing.settle_seconds)
            sweeps.append(
                await measure.sweep(fleet, phase, range(1, deepest + 1), timing, view.doing)
            )
        await fleet.pin(None)
        watching.cancel()
        await load.stop()
        failed = [result for result in load.results if not result.ok]
        served = verdict.Served(
            requests=len(load.results),
            failed=len(failed),
            first_error=failed[0].error if failed else "",
            restarts=sum(pod.restarts for pod in await fleet.pods()),
        )
    claims = verdict.claims(results, sweeps, served)
    console.print(sweep_table(sweeps))
    console.print(summary_table(results, sweeps, static_depth))
    console.print(claim_lines(claims))
    return all(claim.holds for claim in claims)
