"""The demo's result as a picture: throughput by depth in each kind of traffic, and the tuner's."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from local_cluster.demo.measure import PhaseResult, SweepResult

_LINE: Final = "tab:gray"
_STATIC: Final = "tab:red"
_TUNED: Final = "tab:blue"


def write_plot(
    results: Sequence[PhaseResult], sweeps: Sequence[SweepResult], static_depth: int, file: Path
) -> None:
    """One panel for each kind of traffic; the format is that of the file's ending.

    Args:
        results: tuned beside static, of each kind of traffic.
        sweeps: every static depth, in the same order.
        static_depth: the user's `tokens`.
        file: such as demo.svg or demo.png.

    Raises:
        OSError: the file cannot be written.
        ValueError: nothing is known of pictures with such an ending.
    """
    # Text stays text, and the same figures make the same file.
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "demo"}):
        figure = Figure(figsize=(3.6 * len(sweeps), 3.4), layout="constrained")
        panels = figure.subplots(1, len(sweeps), squeeze=False)[0]
        for axes, result, sweep in zip(panels, results, sweeps, strict=True):
            _panel(axes, result, sweep, static_depth)
        panels[0].set_ylabel("tokens per second")
        panels[0].legend(loc="best", fontsize="small")
        figure.savefig(file, metadata={"Date": None} if file.suffix == ".svg" else None)


def _panel(axes: Axes, result: PhaseResult, sweep: SweepResult, static_depth: int) -> None:
    depths = sorted(sweep.rates)
    axes.plot(
        depths,
        [sweep.rates[depth] for depth in depths],
        color=_LINE,
        marker="o",
        markersize=3,
        label="each static depth",
    )
    axes.plot(
        static_depth, sweep.rates[static_depth], "s", color=_STATIC, label=f"static {static_depth}"
    )
    if result.depth in sweep.rates:
        chosen = sweep.rates[result.depth]
        axes.plot(result.depth, chosen, "*", markersize=14, color=_TUNED, label="Fathom's choice")
    axes.set_title(f"{result.phase}: tuned / static\n{result.ratio}", fontsize="medium")
    axes.set_xlabel("depth")
    axes.set_xticks(depths)
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
