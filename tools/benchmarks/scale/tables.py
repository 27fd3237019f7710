"""The benchmark's result for a person."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from rich.console import Group
from rich.table import Table
from rich.text import Text

from benchmarks.scale.figures import (
    FigureOf,
    Percentiles,
    ScaleReport,
    SizeFigures,
    WindowLoad,
    growth,
    of_part,
)
from benchmarks.scale.memory import gained_per_hour
from benchmarks.scale.sampling import Hottest
from benchmarks.scale.takeover import Ending, Takeover

_MOST_KINDS: Final = 8


@dataclass(frozen=True, slots=True)
class FigureRow:
    """One figure of each size."""

    label: str
    value: FigureOf
    digits: int = 0


def _of_load(when: str, load: Callable[[SizeFigures], WindowLoad | None]) -> Iterator[FigureRow]:
    """What every window shows."""

    def of(figure: Callable[[WindowLoad], float | None]) -> FigureOf:
        return of_part(load, figure)

    yield FigureRow(f"{when}: operator, cores", of(lambda window: window.operator_cores), 3)
    yield FigureRow(f"{when}: cores it waited for", of(lambda window: window.waited_cores), 3)
    yield FigureRow(f"{when}: resident memory, MiB", of(lambda window: window.rss_mib))
    yield FigureRow(f"{when}: passes a minute", of(lambda window: window.passes_per_minute))
    yield FigureRow(f"{when}: processor ms a pass", of(lambda window: window.cpu_ms_per_pass), 1)
    yield FigureRow(f"{when}: passes not finished", of(lambda window: window.failed_passes))
    yield FigureRow(f"{when}: operator ended by itself", of(lambda window: window.restarts))
    yield FigureRow(f"{when}: reads a minute", of(lambda window: window.reads_per_minute))
    yield FigureRow(
        f"{when}: reads a minute and resource",
        lambda size: of_part(load, lambda window: window.reads_per_minute / size.resources)(size),
        2,
    )
    yield FigureRow(f"{when}: writes a minute", of(lambda window: window.writes_per_minute), 1)
    yield FigureRow(
        f"{when}: KiB a minute from the API server",
        of(lambda window: window.received_kib_per_minute),
    )
    yield FigureRow(f"{when}: pages a second", of(lambda window: window.pages_per_second), 1)
    yield FigureRow(f"{when}: API server, cores", of(lambda window: window.api_server_cores), 3)
    yield FigureRow(f"{when}: API server, memory, MiB", of(lambda window: window.api_server_mib))
    yield FigureRow(f"{when}: machine, cores", of(lambda window: window.machine_cores), 2)


def _of_edits(when: str, edits: Callable[[SizeFigures], Percentiles | None]) -> Iterator[FigureRow]:
    what = f"{when}: edit to first write, s"
    yield FigureRow(f"{what} (p50)", of_part(edits, lambda spread: spread.p50), 2)
    yield FigureRow(f"{what} (p99)", of_part(edits, lambda spread: spread.p99), 2)


def _of_takeover(ending: Ending) -> Iterator[FigureRow]:
    def taken(size: SizeFigures) -> Takeover | None:
        return next((each for each in size.takeovers if each.ending is ending), None)

    when = f"leader {ending}"
    first_pass = of_part(taken, lambda found: found.first_pass_seconds)
    yield FigureRow(f"{when}: first pass of the next, s", first_pass, 1)
    looked_at = of_part(taken, lambda found: found.looked_at_seconds)
    yield FigureRow(f"{when}: it has looked at all, s", looked_at, 1)
    yield FigureRow(
        f"{when}: workloads written", of_part(taken, lambda found: found.workloads_written)
    )


ROWS: Final = (
    FigureRow("pods that serve", lambda size: size.pods),
    FigureRow("built, s", lambda size: size.build.seconds, 1),
    FigureRow("built: operator, processor s", lambda size: size.build.cpu_seconds, 1),
    FigureRow("built: writes a resource", lambda size: size.build.writes / size.resources, 1),
    FigureRow("built: operator ended by itself", lambda size: size.build.restarts),
    FigureRow("cold start, s", lambda size: size.start.seconds, 1),
    FigureRow("cold start: operator, processor s", lambda size: size.start.cpu_seconds, 1),
    FigureRow("cold start: reads a resource", lambda size: size.start.reads / size.resources, 1),
    FigureRow("cold start: operator ended by itself", lambda size: size.start.restarts),
    *_of_load("rest", lambda size: size.rest),
    *_of_edits("rest", lambda size: size.edits_at_rest),
    *_of_load("traffic", lambda size: size.traffic),
    *_of_edits("traffic", lambda size: size.edits_under_traffic),
    FigureRow("traffic: decisions a minute", lambda size: size.traffic.decisions_per_minute),
    FigureRow("traffic: of them not to hold", lambda size: size.traffic.acted_per_minute, 1),
    FigureRow("traffic: writes a decision", lambda size: size.traffic.writes_per_decision, 3),
    FigureRow("traffic: processor ms a page", lambda size: size.page_cpu_ms, 2),
    FigureRow("traffic: pods a core, as it was", lambda size: size.pods_per_core),
    FigureRow(
        "traffic: pods a core, a page each 30 s", lambda size: size.pods_per_core_once_a_window
    ),
    *_of_load("steady", lambda size: size.steady),
    *_of_edits("steady", lambda size: size.edits_when_steady),
    FigureRow("steady: memory gained, MiB an hour", lambda size: gained_per_hour(size.memory), 1),
    *_of_takeover(Ending.KILLED),
    *_of_takeover(Ending.STOPPED),
    FigureRow("edits that no write followed", lambda size: size.edits_unanswered),
    FigureRow("operator ended by itself, in all", lambda size: size.restarts),
    FigureRow("status, bytes (p50)", lambda size: size.status_bytes.p50),
    FigureRow("status, bytes (most)", lambda size: size.status_bytes.most),
)


def result_tables(report: ScaleReport, hottest: Sequence[Hottest]) -> Group:
    """Everything that was measured."""
    tables = (
        figures_table(report),
        requests_table(report),
        warnings_table(report),
        *map(hottest_table, hottest),
    )
    return Group(*(part for table in tables for part in (table, Text())))


def figures_table(report: ScaleReport) -> Table:
    """A row for each figure, a column for each size, and between two how it grew."""
    where = "one namespace" if report.one_namespace else "many namespaces"
    table = Table(
        title=f"One operator, {report.pods_each} pods each, {where}; Kubernetes "
        f"{report.kubernetes}, Python {report.python}, {report.processors} processors, "
        f"{report.slowness:.1f} times as slow as the documentation's"
    )
    table.add_column("resources", no_wrap=True)
    for number, size in enumerate(report.sizes):
        if number:
            times = growth(report.sizes[number - 1].resources, size.resources)
            table.add_column(_times(times), justify="right", no_wrap=True, style="dim")
        table.add_column(str(size.resources), justify="right", no_wrap=True)
    for row in ROWS:
        values = [row.value(size) for size in report.sizes]
        cells = [_number(values[0], row.digits)]
        for smaller, larger in pairwise(values):
            cells += [_times(growth(smaller, larger)), _number(larger, row.digits)]
        table.add_row(row.label, *cells)
    return table


def requests_table(report: ScaleReport) -> Table:
    """What the operator asked of the API server, kind by kind, at the largest size."""
    size = report.sizes[-1]
    table = Table(title=f"Requests a minute by kind, {size.resources} resources")
    for column in ("", "reads", "writes"):
        table.add_column(column, no_wrap=not column)
    for when, load in (("rest", size.rest), ("traffic", size.traffic)):
        table.add_row(
            when,
            _kinds(load.reads_by_kind, load.seconds),
            _kinds(load.writes_by_kind, load.seconds),
        )
    return table


def warnings_table(report: ScaleReport) -> Table:
    """What the operator's log warned of, at each size."""
    table = Table(title="Warnings in the operator's log, by what they say")
    table.add_column("warning", no_wrap=True)
    for size in report.sizes:
        table.add_column(str(size.resources), justify="right", no_wrap=True)
    for warning in dict.fromkeys(each for size in report.sizes for each in size.warnings):
        table.add_row(warning, *(str(size.warnings.get(warning, 0)) for size in report.sizes))
    return table


def hottest_table(hottest: Hottest) -> Table:
    """Where the operator's processor time went."""
    table = Table(title=f"Processor time by function, {hottest.what}: {hottest.samples} samples")
    for column in ("itself", "function", "with what it calls", "function of Fathom's"):
        table.add_column(column, justify="left" if "function" in column else "right")
    for itself, whole in zip(hottest.itself, hottest.whole, strict=False):
        table.add_row(f"{itself.share:.1%}", itself.name, f"{whole.share:.1%}", whole.name)
    return table


def _kinds(counts: dict[str, int], seconds: float) -> str:
    most = list(counts.items())[:_MOST_KINDS]
    return ", ".join(f"{kind} {count / seconds * 60:.0f}" for kind, count in most) or "none"


def _number(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:,.{digits}f}"


def _times(value: float | None) -> str:
    return "" if value is None else f"×{value:.2g}" if value < 10 else f"×{value:.0f}"  # noqa: PLR2004
