"""`python -m benchmarks pages`, the command."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.table import Table

from benchmarks.pages.figures import (
    BOUND_MS,
    MOST_CORES,
    PODS,
    WINDOW_S,
    PageFigures,
    PrometheusCost,
)
from benchmarks.results import require_folder, result_console
from local_cluster.errors import explained

_WIDTH: Final = 110
WORLDS: Final = ("steady", "goodput-slo")
"""Four pods each; with an SLO the tuner weighs more."""


def bench_pages_command(
    *,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the figures.")] = None,
) -> None:
    """What a pod costs the operator in a window: page, HTTP, tuner; fails beyond its bound."""
    # numpy takes a second to load, which no other command should wait for.
    from benchmarks.pages.deciding import tuner_cost  # noqa: PLC0415
    from benchmarks.pages.measuring import page_costs  # noqa: PLC0415

    console = result_console(_WIDTH)
    with explained():
        require_folder(json_file)
        prometheus, page = page_costs()
        figures = PageFigures(page, prometheus, tuple(tuner_cost(world) for world in WORLDS))
        if json_file is not None:
            json_file.write_text(json.dumps(asdict(figures), indent=2) + "\n")
    console.print(page_table(figures))
    console.print(prometheus_table(figures.prometheus))
    console.print(window_table(figures))
    console.print(verdict(figures))
    if not figures.holds:
        raise typer.Exit(1)


def page_table(figures: PageFigures) -> Table:
    """One page, in several ways."""
    page = figures.page
    shown = Table(title=f"A page of {page.page_bytes / 1024:.0f} KiB and {page.series} series")
    shown.add_column("processor time")
    shown.add_column("ms", justify="right")
    shown.add_column("ratio", justify="right")
    for what, took_ms in (
        ("the library's parser, over the lines that are wanted", page.library_ms),
        ("read at first sight of every series", page.first_ms),
        ("read again", page.known_ms),
        ("fetched over HTTP", page.fetch_ms),
        ("fetched and read among others, lines new", page.changed_ms),
        ("fetched and read among others, lines known", page.look_ms),
    ):
        shown.add_row(what, f"{took_ms:.2f}", f"{took_ms / page.library_ms:.3f}")
    return shown


def prometheus_table(cost: PrometheusCost) -> Table:
    """One pod's look by a Prometheus that scrapes it each 5 s, in two ways."""
    shown = Table(title="A pod by a Prometheus")
    for column in ("asked for", "ms", "ratio", "KiB", "ratio"):
        shown.add_column(column, justify="left" if column == "asked for" else "right")
    for what, took_ms, kib in (
        ("all scrapes of the lookback", cost.whole_ms, cost.whole_kib),
        ("the last scrape", cost.last_ms, cost.last_kib),
    ):
        shown.add_row(
            what,
            *(f"{took_ms:.2f}", f"{took_ms / cost.whole_ms:.3f}"),
            *(f"{kib:.0f}", f"{kib / cost.whole_kib:.3f}"),
        )
    return shown


def window_table(figures: PageFigures) -> Table:
    """A pod and window, world by world."""
    shown = Table(title=f"A pod and window of {WINDOW_S:.0f} s, at most {BOUND_MS:.2f} ms")
    for column in ("world", "pods", "a decision, ms", "looks", "in all, ms", f"cores, {PODS} pods"):
        shown.add_column(column, justify="right")
    for each in figures.tuners:
        shown.add_row(
            each.world,
            str(each.pods),
            f"{each.decide_ms:.2f}",
            f"{each.looks:.2f}",
            f"{each.window_ms(figures.page):.2f}",
            f"{each.cores(figures.page):.2f}",
            style="" if each.window_ms(figures.page) <= BOUND_MS else "red",
        )
    return shown


def verdict(figures: PageFigures) -> str:
    """What follows, in a sentence."""
    dearest = figures.dearest
    cores = f"{dearest.cores(figures.page):.2f} of a core (world {dearest.world})"
    kept = "at most" if figures.holds else "more than the"
    return (
        f"A page is read {figures.page.ratio:.0f} times as fast as by the library. "
        f"{PODS} pods take {cores}, {kept} {MOST_CORES} that they may."
    )
