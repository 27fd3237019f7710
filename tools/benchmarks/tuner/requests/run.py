"""All request worlds and seeds on all processors."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter
from rich.console import Console

from benchmarks.tuner.parallel import simulated
from benchmarks.tuner.requests.random_worlds import random_request_world
from benchmarks.tuner.requests.score import RequestScore, score
from benchmarks.tuner.requests.table import request_table
from benchmarks.tuner.requests.world import RequestWorld, load, shipped
from benchmarks.tuner.worlds.errors import WorldError

_SCORES: TypeAdapter[list[RequestScore]] = TypeAdapter(list[RequestScore])


@dataclass(frozen=True, slots=True)
class _Job:
    world: RequestWorld
    seed: int


def run_requests(
    *,
    worlds: Sequence[str],
    random_worlds: Sequence[int] = (),
    seeds: Sequence[int],
    json_file: Path | None,
    jobs: int,
    console: Console,
) -> None:
    """Simulate, print the table, and write the figures.

    Args:
        worlds: names or paths; none, and none at random: all that are shipped.
        random_worlds: numbers of worlds that are drawn at random.
        seeds: of what is drawn.
        json_file: where the figures go.
        jobs: processes.
        console: for the table.

    Raises:
        WorldError: what was asked for cannot be; in a sentence.
    """
    named = worlds or (() if random_worlds else shipped())
    chosen = [*map(load, named), *map(random_request_world, random_worlds)]
    if len({world.name for world in chosen}) < len(chosen):
        names = ", ".join(world.name for world in chosen)
        raise WorldError(f"Worlds must have names of their own: {names}.")
    todo = [_Job(world, seed) for world in chosen for seed in seeds]
    order = {world.name: at for at, world in enumerate(chosen)}
    done = simulated(_run, todo, _label, jobs=jobs, console=Console(stderr=True))
    scores = sorted(done, key=lambda each: (order[each.world], each.seed))
    console.print(request_table(scores))
    if json_file is None:
        return
    try:
        json_file.write_bytes(_SCORES.dump_json(scores, indent=2) + b"\n")
    except OSError as error:
        raise WorldError(f"{json_file} cannot be written: {error.strerror}.") from error


def _run(job: _Job) -> RequestScore:
    return score(job.world, job.seed)


def _label(job: _Job) -> str:
    return f"{job.world.name} {job.seed}"
