"""`fathom local demo`: the whole loop on this machine, depth that follows the traffic."""

import asyncio
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from rich.console import Console

from fathom.engine.depth import depth_at
from local_cluster.cluster import LocalCluster
from local_cluster.demo import measure, verdict
from local_cluster.demo.follow import until_moved
from local_cluster.demo.observe import UNREADABLE, observe
from local_cluster.demo.page import page_url, save_page
from local_cluster.demo.phases import SCENES, DemoTiming, Scene
from local_cluster.demo.stage import DemoStage, set_stage
from local_cluster.demo.stepping import stepping_seconds
from local_cluster.demo.view import DemoView, claim_lines, speed_table
from local_cluster.engine.traffic import LoadGenerator
from local_cluster.errors import LocalClusterError
from local_cluster.images import Image

CLUSTER: Final = "demo"


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """What the user chooses."""

    page: Path
    """Where the operator's page of the resource is kept."""
    strict: bool = False
    """Whether the second act counts, too."""
    timing: DemoTiming = field(default_factory=DemoTiming)


def run_demo(
    console: Console, images: Sequence[Image], options: DemoOptions
) -> verdict.DemoOutcome:
    """Run it all, and say what came of it.

    Args:
        console: to show it on.
        images: that the nodes have besides the usual ones.
        options: what the user chooses.

    Raises:
        LocalClusterError: the cluster, the operator or the engines did not come up, or ended.
        asyncio.CancelledError: SIGTERM or SIGHUP arrived; the cluster is gone, as at any end.
    """
    return asyncio.run(_run(console, images, options))


async def _run(
    console: Console, images: Sequence[Image], options: DemoOptions
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
            return await _play(stage, view, console, options)


async def _play(
    stage: DemoStage, view: DemoView, console: Console, options: DemoOptions
) -> verdict.DemoOutcome:
    fleet = stage.fleet
    spec = (await fleet.resource())["spec"]
    static_depth: int = spec["speculation"]["tokens"]
    view.page(await page_url(fleet))
    async with (
        LoadGenerator(await fleet.service_url(), spec["model"]["id"]) as load,
        _observed(stage, view),
    ):
        play = _Play(stage, view, load, options.timing)
        moves = await play.first_act(static_depth)
        comparisons: list[measure.Comparison] = []
        speed: list[verdict.Claim] = []
        if all(move.as_asked for move in moves):
            view.say(f"second act: how much faster that is than static depth {static_depth}")
            comparisons, speed = await play.second_act(static_depth)
        await load.stop()
        served = await _served(stage, load)
    view.end()
    loop = verdict.loop_claims(moves, served)
    ended = verdict.outcome(loop, speed, strict=options.strict)
    if comparisons:
        console.print(speed_table(comparisons, static_depth))
    console.print(claim_lines((*loop, *speed)), soft_wrap=True)
    console.print(await save_page(fleet, options.page), soft_wrap=True, highlight=False)
    console.print(verdict.last_word(ended, speed), soft_wrap=True, highlight=False)
    return ended


@asynccontextmanager
async def _observed(stage: DemoStage, view: DemoView) -> AsyncIterator[None]:
    """Shows the fleet meanwhile. What fails within comes out as it is, not as a group."""
    watching = asyncio.create_task(observe(stage.fleet, view.frame))
    try:
        yield
    finally:
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching


@dataclass(frozen=True, slots=True)
class _Play:
    """The parts of the demo, on one fleet."""

    stage: DemoStage
    view: DemoView
    load: LoadGenerator
    timing: DemoTiming

    async def first_act(self, tokens: int) -> list[verdict.Move]:
        """Each kind of traffic until depth has gone where it asks; ends where it does not."""
        moves: list[verdict.Move] = []
        for scene in SCENES:
            before = moves[-1].after if moves else tokens
            batch = await self._traffic(scene)
            asked = f"waits for a {scene.asks.value} depth than {before} at batch {batch}"
            moves.append(await self._moved(scene, before, self.timing.move_seconds, asked))
            if not moves[-1].as_asked:
                break
        return moves

    async def second_act(
        self, static_depth: int
    ) -> tuple[list[measure.Comparison], list[verdict.Claim]]:
        """The tuner against a static depth in each kind of traffic; the last one still runs."""
        found: list[measure.Comparison] = []
        claims: list[verdict.Claim] = []
        for scene in reversed(SCENES):
            try:
                found.append(await self._compare(scene, static_depth))
                claims.append(verdict.speed_claim(found[-1]))
            except (LocalClusterError, *UNREADABLE) as error:
                claims.append(verdict.not_compared(scene.phase, str(error)))
        return found, claims

    async def _compare(self, scene: Scene, static_depth: int) -> measure.Comparison:
        fleet = self.stage.fleet
        await self._traffic(scene)
        await self._moved(scene, static_depth, self.timing.adapt_seconds, "the tuner adapts")
        turns = await measure.in_turn(
            measure.slices(fleet, self._stepping_seconds, self.timing.slice_seconds),
            static_depth,
            self.timing.pairs,
            lambda so_far: self.view.compare(so_far, self.timing.pairs),
        )
        await fleet.pin(None)
        depth = depth_at((await fleet.document()).schedule, await self._batch(scene))
        return measure.Comparison(
            phase=scene.phase, depth=depth, static_depth=static_depth, turns=turns
        )

    async def _traffic(self, scene: Scene) -> int:
        """Sends this traffic from now on; returns its batch at each engine."""
        batch = await self._batch(scene)
        self.view.traffic(scene.phase, batch)
        self.load.set_phase(scene.phase)
        return batch

    async def _batch(self, scene: Scene) -> int:
        return max(1, round(scene.phase.concurrency / len(await self.stage.fleet.pods())))

    async def _moved(self, scene: Scene, before: int, limit_s: float, doing: str) -> verdict.Move:
        batch = await self._batch(scene)
        return await until_moved(
            lambda: self.stage.fleet.depth_in_force(batch),
            scene,
            before,
            stays_s=self.timing.stays_seconds,
            limit_s=limit_s,
            waited=lambda seconds: self.view.doing(
                f"{doing} ({seconds:.0f} s of {limit_s:.0f} s at most)"
            ),
        )

    def _stepping_seconds(self) -> float | None:
        kubelet = self.stage.cluster.kubelet.find()
        return None if kubelet is None else stepping_seconds(kubelet)


async def _served(stage: DemoStage, load: LoadGenerator) -> verdict.Served:
    failed = [result for result in load.results if not result.ok]
    return verdict.Served(
        requests=len(load.results),
        failed=len(failed),
        first_error=failed[0].error if failed else "",
        restarts=sum(pod.restarts for pod in await stage.fleet.pods()),
    )
