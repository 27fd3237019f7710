"""`python -m benchmarks tuner`: the tuner against the clairvoyant, in simulated fleets."""

import os
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from local_cluster.errors import explained

_FILE_WIDTH = 130
"""Columns of the tables in a file or a log, where no terminal says how many there are."""


def bench_tuner_command(
    more_worlds: Annotated[
        list[str] | None, typer.Argument(metavar="[WORLD]...", help="More worlds.")
    ] = None,
    *,
    seeds: Annotated[str, typer.Option(metavar="A-B", help="Seeds, first to last.")] = "1-3",
    worlds: Annotated[
        list[str] | None,
        typer.Option(metavar="WORLD...", help="Names or paths of worlds; none: all shipped."),
    ] = None,
    random_worlds: Annotated[
        str | None, typer.Option("--random", metavar="A-B", help="Worlds drawn at random.")
    ] = None,
    policies: Annotated[
        list[str] | None, typer.Option(help="Only this one; can be repeated. None: all.")
    ] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the figures.")] = None,
    plot: Annotated[Path, typer.Option(help="Write the picture (PNG).")] = Path("bench-tuner.png"),
    trace: Annotated[
        Path | None, typer.Option(help="Folder for every window and decision, as CSV.")
    ] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Processes.")] = os.cpu_count() or 1,
    graphs: Annotated[
        bool, typer.Option("--graphs", help="Arrangements of CUDA graphs instead of policies.")
    ] = False,
    requests: Annotated[
        bool, typer.Option("--requests", help="Worlds that serve whole requests, one by one.")
    ] = False,
) -> None:
    """Simulated fleets: our tuner beside static depths, other policies and the clairvoyant."""
    # numpy, scipy and matplotlib take a second to load, which no other command should wait for.
    from benchmarks.tuner.bench import Request, numbers_in, run_bench  # noqa: PLC0415
    from benchmarks.tuner.requests.run import run_requests  # noqa: PLC0415
    from benchmarks.tuner.worlds.errors import WorldError  # noqa: PLC0415

    console = Console() if Console().is_terminal else Console(width=_FILE_WIDTH)
    with explained():
        if requests:
            if policies or trace or graphs:
                raise WorldError("--requests takes neither --policies, --trace nor --graphs.")
            run_requests(
                worlds=(*(worlds or ()), *(more_worlds or ())),
                random_worlds=numbers_in(random_worlds, "--random") if random_worlds else (),
                seeds=numbers_in(seeds, "--seeds"),
                json_file=json_file,
                jobs=jobs,
                console=console,
            )
            return
        run_bench(
            Request(
                worlds=(*(worlds or ()), *(more_worlds or ())),
                random_worlds=random_worlds,
                seeds=seeds,
                policies=tuple(policies or ()),
                json_file=json_file,
                plot=plot,
                trace=trace,
                jobs=jobs,
                graphs=graphs,
            ),
            console,
        )
