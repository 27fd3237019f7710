"""The benchmark's result for a person."""

from collections.abc import Iterable
from statistics import median

from rich.console import Group
from rich.table import Table
from rich.text import Text

from benchmarks.gpu.report import CapturedGraphs, GpuBenchReport, claims
from local_cluster.demo.compare import Ratio
from local_cluster.demo.view import claim_lines


def result_tables(report: GpuBenchReport) -> Group:
    """Everything that was measured, and what follows from it."""
    return Group(
        changes_table(report),
        Text(),
        graph_table(report) if report.gpu else Text(no_graphs(report)),
        Text(),
        engine_table(report.engines),
        Text(),
        comparison_table(report),
        Text(),
        claim_lines(claims(report)),
    )


def no_graphs(report: GpuBenchReport) -> str:
    """In place of the table, where no GPU is."""
    return f"CUDA graphs: nothing is captured here, since this is {report.machine}."


def changes_table(report: GpuBenchReport) -> Table:
    """Whether written depths were obeyed, by batch."""
    table = Table(title=f"Depth changed under traffic, {report.machine}")
    for column in (
        "requests in flight",
        "changes",
        "obeyed",
        "drafted after, median and most",
        "steps until verified, most",
        "steps",
        "at another depth",
    ):
        table.add_column(column, justify="right")
    for batch in dict.fromkeys(change.batch for change in report.changes):
        of_it = [change for change in report.changes if change.batch == batch]
        after = [each.drafted_after_ms for each in of_it if each.drafted_after_ms is not None]
        until = [
            each.steps_until_verified for each in of_it if each.steps_until_verified is not None
        ]
        table.add_row(
            str(batch),
            str(len(of_it)),
            str(sum(each.obeyed for each in of_it)),
            f"{median(after):.0f}, {max(after):.0f} ms" if after else "never",
            str(max(until)) if until else "never",
            str(sum(each.steps for each in of_it)),
            str(sum(each.disobedient for each in of_it)),
        )
    return table


def graph_table(report: GpuBenchReport) -> Table:
    """What the steps of each batch and depth got, at the batches that were kept up."""
    table = Table(title="Steps of the live engine: full graph / piecewise / no graph")
    table.add_column("batch", justify="right")
    depths = sorted({cell.depth for cell in report.graphs})
    for depth in depths:
        table.add_column(f"depth {depth}", justify="right")
    cells = {(cell.batch, cell.depth): cell for cell in report.graphs}
    for batch in dict.fromkeys(change.batch for change in report.changes):
        found = [cells.get((batch, depth)) for depth in depths]
        table.add_row(
            str(batch),
            *(f"{each.full} / {each.piecewise} / {each.none}" if each else "" for each in found),
        )
    return table


def engine_table(engines: Iterable[CapturedGraphs]) -> Table:
    """What each engine captured."""
    table = Table(title="The engines")
    for column in (
        "engine",
        "model runner",
        "graph mode",
        "sizes",
        "graphs",
        "captured in",
        "they took / were to take",
        "KV cache",
        "up after",
    ):
        table.add_column(column, justify="left" if column == "engine" else "right")
    for each in engines:
        table.add_row(
            each.engine,
            each.runner,
            each.mode,
            f"{len(each.sizes)}, to {each.sizes[-1]}" if each.sizes else "none",
            str(each.graphs),
            _told(each.start_up.capture_seconds, "{:.0f} s"),
            f"{_told(each.start_up.graph_gib, '{:.2f}')} / "
            f"{_told(each.start_up.set_aside_gib, '{:.2f} GiB')}",
            _told(each.start_up.cache_tokens, "{:,} tokens"),
            f"{each.ready_seconds:.0f} s",
        )
    return table


def _told(value: float | None, form: str) -> str:
    return "–" if value is None else form.format(value)


def comparison_table(report: GpuBenchReport) -> Table:
    """Live against single depths; above 1 is what live depth costs."""
    table = Table(
        title="A step: live / an engine of that depth alone [95 %]; 0: no speculation"
        + ("; too short to tell" if report.quick else "")
    )
    table.add_column("depth", justify="right")
    batches = list(dict.fromkeys(each.batch for each in report.comparisons))
    for batch in batches:
        table.add_column(f"batch {batch}", justify="right", no_wrap=True)
    cells = {(each.batch, each.depth): each for each in report.comparisons}
    for depth in report.depths:
        row = []
        for batch in batches:
            cell = cells[batch, depth]
            if cell.medians is None or cell.fastest is None:
                row.append("too few steps")
                continue
            live, single = (
                median(turn.median_ms for turn in each) for each in (cell.live, cell.single)
            )
            row.append(
                f"{live:.2f} / {single:.2f} ms\n"
                f"{_ratio(cell.medians)}\n[dim]fastest tenth[/dim]\n{_ratio(cell.fastest)}"
            )
        table.add_row(str(depth), *row)
    return table


def _ratio(ratio: Ratio) -> str:
    return f"{ratio.estimate:.3f} [{ratio.low:.3f}, {ratio.high:.3f}]"
