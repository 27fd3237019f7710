"""The report as a picture: each policy's oracle fractions, world by world."""

from pathlib import Path
from typing import Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.tuner.results.report import TunerBenchReport

SHOWN: Final = {
    "static_user": "tab:gray",
    "best_static_depth": "tab:olive",
    "best_static_schedule": "tab:green",
    "slots": "tab:brown",
    "thompson": "tab:purple",
    "live": "tab:blue",
}
"""What is told apart by world; the left half shows every policy."""
_LEAST_PERCENT: Final = 80.0


def write_plot(report: TunerBenchReport, file: Path) -> None:
    """Two panels: every policy over all world-days, and the main ones in each world.

    Raises:
        OSError: the file cannot be written.
    """
    height = 2.0 + 0.42 * max(len(report.worlds), len(report.fractions))
    figure = Figure(figsize=(15, height), layout="constrained")
    left, right = figure.subplots(1, 2)
    _policies(left, report)
    _worlds(right, report)
    for axes in (left, right):
        axes.set_xlabel("% of the clairvoyant's tokens, per world-day")
        axes.grid(axis="x", alpha=0.3)
    figure.savefig(file, dpi=120)


def _policies(axes: Axes, report: TunerBenchReport) -> None:
    percents = {
        policy: [100 * each for fractions in worlds.values() for each in fractions]
        for policy, worlds in report.fractions.items()
    }
    ordered = sorted(percents, key=lambda policy: sum(percents[policy]) / len(percents[policy]))
    axes.boxplot(
        [percents[policy] for policy in ordered],
        orientation="horizontal",
        tick_labels=ordered,
        whis=(5, 95),
        showmeans=True,
        flierprops={"markersize": 3},
    )
    axes.set_title("All worlds (box: quartiles; whiskers: 5 % and 95 %; triangle: mean)")


def _worlds(axes: Axes, report: TunerBenchReport) -> None:
    shown = {policy: colour for policy, colour in SHOWN.items() if policy in report.fractions}
    for lane, (policy, colour) in enumerate(shown.items()):
        offset = 0.7 * (lane / max(1, len(shown) - 1) - 0.5)
        points = [
            (max(_LEAST_PERCENT, 100 * each), row + offset)
            for row, world in enumerate(report.worlds)
            for each in report.fractions[policy].get(world, ())
        ]
        percents, heights = zip(*points, strict=True)
        axes.scatter(percents, heights, s=14, color=colour, label=policy, alpha=0.8)
    axes.set_yticks(range(len(report.worlds)), report.worlds)
    axes.hlines(
        [row + 0.5 for row in range(len(report.worlds) - 1)],
        _LEAST_PERCENT,
        101,
        color="lightgray",
        linewidth=0.8,
    )
    axes.invert_yaxis()
    axes.set_xlim(_LEAST_PERCENT - 0.5, 101)
    axes.set_title(f"Each world (below {_LEAST_PERCENT:.0f} % drawn at the edge)")
    axes.legend(loc="lower left", fontsize="small")
