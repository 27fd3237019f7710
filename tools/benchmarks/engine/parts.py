"""Which part of what makes an engine tunable costs what: engines with one part more each, in turns.

All stand on one processor and one works at a time. What a step costs is told by the processor time
of the whole engine: unlike steps per second it hardly minds what else the machine does. A second
engine without any part shows how far two processes of the same command differ.
"""

import asyncio
import contextlib
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from pydantic import BaseModel, ConfigDict
from rich.console import Console
from rich.table import Table

from benchmarks.engine.main import ended_by_sigterm, engine_may_fail, started
from benchmarks.engine.meter import Generations, in_force
from benchmarks.engine.price import STEPS
from benchmarks.engine.processors import running_on, split
from benchmarks.engine.timing import PRICE_TRAFFIC
from benchmarks.engine.view import BenchView
from fathom.engine.depth import DepthDocument, flat
from local_cluster.demo.compare import Ratio, paired_ratio
from local_cluster.engine.process import EngineProcess, EngineSetup, Part
from local_cluster.engine.scrape import scrape
from local_cluster.engine.traffic import LoadGenerator

NAMES: Final[Mapping[str, Part]] = {
    "nothing: mode Static's command": Part.NOTHING,
    "nothing, once more": Part.NOTHING,
    "a startup schedule of one depth": Part.SCHEDULE,
    "room for depth 7, all depths named": Part.DEPTHS,
    "the plugin's scheduler": Part.SCHEDULER,
    "the plugin's metrics: all of it": Part.LOGGER,
}
"""The engines, each with the parts of those before it."""
_REST_SECONDS: Final = 1.5
"""Before each turn: an engine goes on spinning for a second after its last request."""


@dataclass(frozen=True, slots=True)
class PartsPlan:
    """How long it takes, starting the engines apart."""

    fleets: int = 3
    """How often all engines are started anew: where a process lies in memory is chance."""
    rounds: int = 6
    """Turns of each engine of a fleet."""
    turn_seconds: float = 6.0

    @property
    def seconds(self) -> float:
        """Seconds of all turns."""
        turns = self.fleets * self.rounds * len(NAMES)
        return turns * (self.turn_seconds + _REST_SECONDS)


QUICK_PARTS: Final = PartsPlan(fleets=1, rounds=2, turn_seconds=2.0)


class PartCost(BaseModel):
    """What one engine's steps cost."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)

    name: str
    step_us: float
    """Processor time of the engine's processes, by step, in microseconds: the mean of its turns."""
    over_nothing: Ratio
    """That over the first engine's, turn by turn."""
    steps_over_nothing: Ratio
    """Steps per second over the first engine's."""


@dataclass(frozen=True, slots=True)
class PartTurn:
    """One engine's turn."""

    step_us: float
    steps_per_second: float


def part_costs(turns: Mapping[str, Sequence[PartTurn]]) -> tuple[PartCost, ...]:
    """By engine; the first is what the others are held against.

    Raises:
        ValueError: fewer than two turns, or not as many of each.
    """
    first = next(iter(turns.values()))
    return tuple(
        PartCost(
            name=name,
            step_us=sum(each.step_us for each in own) / len(own),
            over_nothing=paired_ratio(
                [each.step_us for each in own], [each.step_us for each in first]
            ),
            steps_over_nothing=paired_ratio(
                [each.steps_per_second for each in own],
                [each.steps_per_second for each in first],
            ),
        )
        for name, own in turns.items()
    )


def parts_table(costs: Sequence[PartCost]) -> Table:
    """Each engine with one part more than the one before it."""
    table = Table(title="What being tunable costs, part by part")
    table.add_column("an engine with")
    for column in (
        "processor time of a step",
        "over nothing [95 %]",
        "steps per second over nothing [95 %]",
    ):
        table.add_column(column, justify="right")
    for each in costs:
        table.add_row(
            each.name,
            f"{each.step_us:,.0f} µs",
            _percent(each.over_nothing),
            _percent(each.steps_over_nothing),
        )
    return table


def run_parts(console: Console, setup: EngineSetup, plan: PartsPlan) -> tuple[PartCost, ...]:
    """Run it all. Leaves no process behind, however it ends.

    Raises:
        LocalClusterError: an engine does not start, or does not do as it should.
    """
    view = BenchView(console, plan.seconds)
    engines, ours = split(os.sched_getaffinity(0))
    turns: dict[str, list[PartTurn]] = {name: [] for name in NAMES}
    with contextlib.ExitStack() as stack:
        stack.enter_context(ended_by_sigterm())
        stack.enter_context(view)
        stack.enter_context(running_on(ours))
        for number in range(plan.fleets):
            view.say(f"starting engines: fleet {number + 1} of {plan.fleets}")
            with contextlib.ExitStack() as fleet:
                directory = fleet.enter_context(tempfile.TemporaryDirectory(prefix="fathom-bench-"))
                running = {
                    name: fleet.enter_context(
                        started(replace(setup, part=part), Path(directory) / str(at), engines)
                    )
                    for at, (name, part) in enumerate(NAMES.items())
                }
                asyncio.run(_take_turns(running, turns, plan, view))
    return part_costs(turns)


async def _take_turns(
    engines: Mapping[str, EngineProcess],
    turns: Mapping[str, list[PartTurn]],
    plan: PartsPlan,
    view: BenchView,
) -> None:
    generations = Generations()
    for each in engines.values():
        if each.setup.hooked:
            await _hold(each, generations)
    for round_ in range(plan.rounds):
        # There and back again, so that a drift of the machine cancels.
        for name in tuple(engines)[:: -1 if round_ % 2 else 1]:
            view.doing(name)
            with engine_may_fail(engines[name]):
                turns[name].append(await _turn(engines[name], plan.turn_seconds))
            view.advance(plan.turn_seconds + _REST_SECONDS)


async def _hold(engine: EngineProcess, generations: Generations) -> None:
    setup = engine.setup
    document = DepthDocument(
        generation=next(generations), schedule=flat(setup.depth, setup.max_batch)
    )
    async with LoadGenerator(engine.base_url, engine.model) as load:
        load.set_phase(PRICE_TRAFFIC)
        engine.write_depth_text(document.to_json())
        if setup.part is Part.LOGGER:  # without its metrics nothing says so
            await in_force(engine, document.generation)
        else:
            await asyncio.sleep(_REST_SECONDS)


async def _turn(engine: EngineProcess, seconds: float) -> PartTurn:
    async with LoadGenerator(engine.base_url, engine.model) as load:
        load.set_phase(PRICE_TRAFFIC)
        await asyncio.sleep(_REST_SECONDS)
        before, cpu_before = await scrape(engine.base_url), engine.cpu_seconds()
        await asyncio.sleep(seconds)
        after, cpu_after = await scrape(engine.base_url), engine.cpu_seconds()
    steps = after.total(STEPS) - before.total(STEPS)
    return PartTurn(1e6 * (cpu_after - cpu_before) / steps, steps / seconds)


def _percent(ratio: Ratio) -> str:
    return f"{ratio.estimate:.1%} [{ratio.low:.1%}, {ratio.high:.1%}]"
