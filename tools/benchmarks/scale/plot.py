"""The benchmark's result as a picture: how each figure grows with the number of resources."""

from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.scale.figures import (
    FigureOf,
    Percentiles,
    ScaleReport,
    SizeFigures,
    WindowLoad,
    of_part,
)


class _When(NamedTuple):
    """A line of each panel: one kind of load, as far as it was measured."""

    label: str
    colour: str
    load: Callable[[SizeFigures], WindowLoad | None]
    edits: Callable[[SizeFigures], Percentiles | None]


_LINES: Final = (
    _When("at rest", "tab:gray", lambda size: size.rest, lambda size: size.edits_at_rest),
    _When(
        *("first minutes of traffic", "tab:orange"),
        lambda size: size.traffic,
        lambda size: size.edits_under_traffic,
    ),
    _When("steady", "tab:blue", lambda size: size.steady, lambda size: size.edits_when_steady),
)


def write_plot(report: ScaleReport, file: Path) -> None:
    """Four panels: processor, a pass, an edit, and memory over time.

    Raises:
        OSError: the file cannot be written.
    """
    # Text stays text, and the same figures are the same file.
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "scale"}):
        figure = Figure(figsize=(11, 7), layout="constrained")
        (cores, passes), (edits, memory) = figure.subplots(2, 2)
        _by_size(cores, report, lambda when: of_part(when.load, lambda load: load.operator_cores))
        cores.set_title("Operator, cores")
        _by_size(passes, report, lambda when: of_part(when.load, lambda load: load.cpu_ms_per_pass))
        passes.set_title("Operator, processor ms a pass")
        _by_size(edits, report, lambda when: of_part(when.edits, lambda spread: spread.p99))
        edits.set_title("Edit to first write, s (p99)")
        for axes in (cores, passes, edits):
            axes.set_xlabel(f"resources, {report.pods_each} pods each")
            axes.set_ylim(bottom=0)
            axes.legend(fontsize="small")
        _memory(memory, report)
        for axes in (cores, passes, edits, memory):
            axes.grid(alpha=0.3)
        figure.savefig(file, metadata={"Date": None} if file.suffix == ".svg" else None)


def _by_size(axes: Axes, report: ScaleReport, figure: Callable[[_When], FigureOf]) -> None:
    for when in _LINES:
        value = figure(when)
        found = [(size.resources, value(size)) for size in report.sizes]
        points = [each for each in found if each[1] is not None]
        if points:
            axes.plot(*zip(*points, strict=True), marker="o", color=when.colour, label=when.label)


def _memory(axes: Axes, report: ScaleReport) -> None:
    for size in report.sizes:
        minutes = [look.seconds / 60 for look in size.memory]
        axes.plot(minutes, [look.mib for look in size.memory], label=f"{size.resources} resources")
    axes.set_title("Resident memory, MiB")
    axes.set_xlabel("minutes since its start: rest, then traffic at every engine")
    axes.set_ylim(bottom=0)
    axes.legend(fontsize="small")
