"""`python -m benchmarks scale`, the command."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Final

import typer

from benchmarks.results import require_folder, result_console
from benchmarks.scale.main import run_bench
from benchmarks.scale.plan import QUICK, ScaleRequest, Shares, Timing
from benchmarks.scale.sampling import Hottest, Profile, hottest
from benchmarks.scale.tables import result_tables
from local_cluster.errors import LocalClusterError, explained

_WIDTH: Final = 130
_SIZES: Final = (100, 300, 1000)
_QUICK_SIZES: Final = (10, 30)
_DEFAULTS: Final = Shares()
_Share = Annotated[float, typer.Option(min=0.0, max=1.0, help="Share of the resources.")]


def bench_scale_command(
    *,
    sizes: Annotated[
        str, typer.Option(metavar="N,N…", help="How many resources, smallest first.")
    ] = "",
    pods: Annotated[int, typer.Option(min=1, max=16, help="Replicas of each resource.")] = 4,
    one_namespace: Annotated[
        bool, typer.Option("--one-namespace", help="All in one, instead of ten in each.")
    ] = False,
    rolling: _Share = _DEFAULTS.rolling,
    unschedulable: _Share = _DEFAULTS.unschedulable,
    refused: _Share = _DEFAULTS.refused,
    warm: Annotated[
        float | None,
        typer.Option(min=0.0, help="Seconds of traffic before it counts; 75 unless given."),
    ] = None,
    steady: Annotated[
        float,
        typer.Option(min=0.0, help="Seconds of more traffic, after which it is watched again."),
    ] = 0.0,
    quick: Annotated[
        bool, typer.Option(help="10 and 30 resources, short windows: shows that it works.")
    ] = False,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the figures.")] = None,
    plot_file: Annotated[
        Path | None, typer.Option("--plot", help="Draw the figures: .svg, .png or .pdf.")
    ] = None,
    profile_file: Annotated[
        Path | None,
        typer.Option("--profile", help="Sample the operator; write stacks for a flame graph."),
    ] = None,
) -> None:
    """One real operator beside hundreds of resources on a real API server: what it costs."""
    console = result_console(_WIDTH)
    timing = replace(QUICK if quick else Timing(), steady_seconds=steady)
    with explained():
        require_folder(json_file)
        require_folder(plot_file)
        require_folder(profile_file)
        report, profile = run_bench(
            console,
            ScaleRequest(
                sizes=sizes_of(sizes) or (_QUICK_SIZES if quick else _SIZES),
                pods_each=pods,
                shares=Shares(rolling, unschedulable, refused),
                one_namespace=one_namespace,
                timing=timing if warm is None else replace(timing, warm_seconds=warm),
                quick=quick,
                profiled=profile_file is not None,
            ),
        )
        if json_file is not None:
            json_file.write_text(report.model_dump_json(indent=2) + "\n")
        if plot_file is not None:
            # matplotlib takes a second to load, which no other command should wait for.
            from benchmarks.scale.plot import write_plot  # noqa: PLC0415

            write_plot(report, plot_file)
        if profile_file is not None:
            profile_file.write_text(profile.to_text())
        console.print(result_tables(report, hottest_parts(profile)))
        if report.failure:
            raise LocalClusterError(report.failure)


def sizes_of(text: str) -> tuple[int, ...]:
    """From `100,300`; empty: none are named.

    Raises:
        LocalClusterError: it is something else.
    """
    try:
        sizes = tuple(int(each) for each in text.split(",") if each.strip())
    except ValueError:
        sizes = (0,)
    if any(each < 1 for each in sizes) or sorted(set(sizes)) != list(sizes):
        raise LocalClusterError(
            f"--sizes {text}: write numbers of resources with commas between them, each larger "
            "than the one before, such as 100,300."
        )
    return sizes


def hottest_parts(profile: Profile) -> tuple[Hottest, ...]:
    """Rest and all traffic of the largest size."""
    largest_size = next(reversed(profile.parts), "").partition(";")[0]
    largest = [
        (what, stacks)
        for what, stacks in profile.parts.items()
        if what.partition(";")[0] == largest_size and what.endswith(("rest", "traffic", "steady"))
    ]
    return tuple(
        hottest(stacks, what.replace("_", " ").replace(";", ", ")) for what, stacks in largest
    )
