"""The benchmark's result as a picture: how each figure grows with the number of resources."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fathom_bench.scale.figures import Percentiles, ScaleReport, SizeFigures, WindowLoad

_WHEN: Final = {
    "at rest": "tab:gray",
    "first minutes of traffic": "tab:orange",
    "steady": "tab:blue",
}


def write_plot(report: ScaleReport, file: Path) -> None:
    """Four panels: processor, a pass, an edit, and memory over time.

    Raises:
        OSError: the file cannot be written.
    """
    # Text stays text, and the same figures are the same file.
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "scale"}):
        figure = Figure(figsize=(11, 7), layout="constrained")
        (cores, passes), (edits, memory) = figure.subplots(2, 2)
        _by_size(cores, report, _loads(lambda load: load.operator_cores))
        cores.set_title("Operator, cores")
        _by_size(passes, report, _loads(lambda load: load.cpu_ms_per_pass))
        passes.set_title("Operator, processor ms a pass")
        _by_size(edits, report, _edits)
        edits.set_title("Edit to first write, s (p99)")
        for axes in (cores, passes, edits):
            axes.set_xlabel(f"resources, {report.pods_each} pods each")
            axes.set_ylim(bottom=0)
            axes.legend(fontsize="small")
        _memory(memory, report)
        for axes in (cores, passes, edits, memory):
            axes.grid(alpha=0.3)
        figure.savefig(file, metadata={"Date": None} if file.suffix == ".svg" else None)


def _loads(
    figure: Callable[[WindowLoad], float | None],
) -> Callable[[SizeFigures], tuple[float | None, ...]]:
    def values(size: SizeFigures) -> tuple[float | None, ...]:
        windows = (size.rest, size.traffic, size.steady)
        return tuple(None if each is None else figure(each) for each in windows)

    return values


def _edits(size: SizeFigures) -> tuple[float | None, ...]:
    spreads: tuple[Percentiles | None, ...] = (
        *(size.edits_at_rest, size.edits_under_traffic),
        size.edits_when_steady,
    )
    return tuple(None if each is None else each.p99 for each in spreads)


def _by_size(
    axes: Axes, report: ScaleReport, values: Callable[[SizeFigures], tuple[float | None, ...]]
) -> None:
    """A line for rest and for each kind of traffic, as far as it was measured."""
    for number, (when, colour) in enumerate(_WHEN.items()):
        points = [
            (size.resources, value)
            for size in report.sizes
            if (value := values(size)[number]) is not None
        ]
        if points:
            axes.plot(*zip(*points, strict=True), marker="o", color=colour, label=when)


def _memory(axes: Axes, report: ScaleReport) -> None:
    for size in report.sizes:
        minutes = [look.seconds / 60 for look in size.memory]
        axes.plot(minutes, [look.mib for look in size.memory], label=f"{size.resources} resources")
    axes.set_title("Resident memory, MiB")
    axes.set_xlabel("minutes since its start: rest, then traffic at every engine")
    axes.set_ylim(bottom=0)
    axes.legend(fontsize="small")
