"""All worlds and seeds on all processors, and what comes of it."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Final

from pydantic import BaseModel
from rich.console import Console

from benchmarks.tuner.parallel import simulated
from benchmarks.tuner.results.graph_study import (
    ARRANGEMENTS,
    Arrangement,
    GraphRun,
    graph_report,
    graph_run,
)
from benchmarks.tuner.results.plot import write_plot
from benchmarks.tuner.results.report import report
from benchmarks.tuner.results.score import RunScore, scores
from benchmarks.tuner.results.table import (
    alarm_line,
    false_alarm_table,
    graph_table,
    live_table,
    policy_table,
)
from benchmarks.tuner.results.trace import write_trace, write_world
from benchmarks.tuner.simulate import CLAIRVOYANT, LIVE, POLICIES, USER, simulate
from benchmarks.tuner.worlds.errors import WorldError
from benchmarks.tuner.worlds.files import load, shipped
from benchmarks.tuner.worlds.random_worlds import random_world
from benchmarks.tuner.worlds.world import SimulatedWorld


@dataclass(frozen=True, slots=True)
class Request:
    """What to simulate, and where to write what comes of it."""

    worlds: tuple[str, ...]
    """Names or paths; none, and no random ones: all shipped."""
    random_worlds: str | None
    """Numbers of worlds drawn at random, as a range."""
    seeds: str
    policies: tuple[str, ...]
    """None: all."""
    json_file: Path | None
    plot: Path
    trace: Path | None
    jobs: int
    graphs: bool
    """Each arrangement of CUDA graphs instead of each policy."""


PLOT_KINDS: Final = (".png", ".svg", ".pdf")


@dataclass(frozen=True, slots=True)
class _Job:
    world: SimulatedWorld
    seed: int
    policies: tuple[str, ...]
    trace: Path | None


@dataclass(frozen=True, slots=True)
class _GraphJob:
    world: SimulatedWorld
    seed: int
    arrangement: Arrangement


def run_bench(request: Request, console: Console) -> None:
    """Simulate, print the tables, and write the files.

    Raises:
        WorldError: what was asked for cannot be; in a sentence.
    """
    if (kind := request.plot.suffix) not in PLOT_KINDS:
        raise WorldError(
            f'--plot takes a file that ends in {", ".join(PLOT_KINDS)}: "{kind}" cannot be drawn.'
        )
    if request.graphs:
        _compare_graphs(request, console)
    else:
        _compare_policies(request, console)


def _compare_policies(request: Request, console: Console) -> None:
    only = policy_names(request.policies)
    drawn = _drawn(request)
    chosen = _chosen(request, drawn)
    if request.trace is not None:
        _make_folder(request.trace)
        for world in drawn:
            write_world(request.trace, world)
    todo = [
        _Job(world, seed, only, request.trace)
        for seed in numbers_in(request.seeds, "--seeds")
        for world in chosen
    ]
    order = {world.name: index for index, world in enumerate(chosen)}
    done = simulated(_run, todo, _label, jobs=request.jobs, console=Console(stderr=True))
    runs = sorted(chain.from_iterable(done), key=lambda run: (run.seed, order[run.world]))
    result = report(runs)
    if LIVE in only:
        console.print(live_table(result))
    console.print(policy_table(result))
    if LIVE in only:
        console.print(alarm_line(result), highlight=False, soft_wrap=True)
        if result.alarms.false_alarms:
            console.print(false_alarm_table(result))
    with _writing():
        _write(result, request.json_file)
        write_plot(result, request.plot)


def _compare_graphs(request: Request, console: Console) -> None:
    if request.policies or request.trace is not None:
        raise WorldError("--graphs takes neither --policies nor --trace: it runs the live tuner.")
    chosen = _chosen(request, _drawn(request))
    todo = [
        _GraphJob(world, seed, arrangement)
        for seed in numbers_in(request.seeds, "--seeds")
        for world in chosen
        for arrangement in ARRANGEMENTS
    ]
    order = {each.name: index for index, each in enumerate(ARRANGEMENTS)}
    done = simulated(_run_graphs, todo, _label, jobs=request.jobs, console=Console(stderr=True))
    result = graph_report(
        sorted(done, key=lambda run: (order[run.arrangement], run.world, run.seed))
    )
    console.print(graph_table(result))
    with _writing():
        _write(result, request.json_file)


def _chosen(request: Request, drawn: Sequence[SimulatedWorld]) -> list[SimulatedWorld]:
    named = request.worlds or (() if drawn else shipped())
    chosen = [*(load(each) for each in named), *drawn]
    names = [world.name for world in chosen]
    if len(set(names)) < len(names):
        raise WorldError(f"Worlds must have names of their own: {', '.join(names)}.")
    return chosen


def _drawn(request: Request) -> list[SimulatedWorld]:
    if request.random_worlds is None:
        return []
    return [random_world(each) for each in numbers_in(request.random_worlds, "--random")]


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise WorldError(f"The folder {folder} cannot be made: {error.strerror}.") from error


@contextmanager
def _writing() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise WorldError(f"{error.filename} cannot be written: {error.strerror}.") from error


def _write(result: BaseModel, json_file: Path | None) -> None:
    if json_file is not None:
        json_file.write_text(result.model_dump_json(indent=2) + "\n")


def numbers_in(text: str, option: str) -> range:
    """`3-5` is 3, 4, 5; `7` is 7.

    Raises:
        WorldError: it is neither.
    """
    first, _, last = text.partition("-")
    try:
        numbers = range(int(first), int(last or first) + 1)
    except ValueError:
        numbers = range(0)
    if not numbers or numbers[0] < 0:
        raise WorldError(f"{option} takes a number or a range such as 1-30, not {text!r}.")
    return numbers


def policy_names(wanted: Sequence[str]) -> tuple[str, ...]:
    """The policies to run, in the order of the report; none named: all.

    Raises:
        WorldError: there is no such policy.
    """
    unknown = set(wanted) - set(POLICIES)
    if unknown:
        raise WorldError(
            f"There is no policy {', '.join(sorted(unknown))}; there are {', '.join(POLICIES)}."
        )
    return tuple(each for each in POLICIES if not wanted or each in {*wanted, USER, CLAIRVOYANT})


def _label(job: _Job | _GraphJob) -> str:
    return f"{job.world.name} {job.seed}"


def _run_graphs(job: _GraphJob) -> GraphRun:
    return graph_run(job.arrangement, job.world, job.seed)


def _run(job: _Job) -> tuple[RunScore, ...]:
    campaigns = simulate(job.world, job.seed, job.policies)
    for campaign in campaigns:
        if job.trace is not None and LIVE in campaign.outcomes:
            write_trace(job.trace, campaign, LIVE)
    first, *others = (scores(campaign, job.policies) for campaign in campaigns)
    names = {run.policy for run in first}
    # The clairvoyant of the coarser days is what advice is measured by; its row is the finer ones.
    return (*first, *(run for runs in others for run in runs if run.policy not in names))
