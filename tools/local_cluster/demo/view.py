"""What the demo shows: live on a terminal, line by line elsewhere, and the summary at the end."""

import time
from collections.abc import Sequence
from types import TracebackType
from typing import Final, Self

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from local_cluster.demo.measure import PhaseResult, SweepResult
from local_cluster.demo.observe import Frame
from local_cluster.demo.phases import title
from local_cluster.demo.verdict import Claim
from local_cluster.engine.traffic import Phase

_LINE_EVERY_SECONDS: Final = 6.0
_HISTORY: Final = 48
_BARS: Final = "▁▂▃▄▅▆▇█"
_MARKS: Final = {True: ("✔ ", "green"), False: ("✘ ", "bold red"), None: ("? ", "bold yellow")}


class DemoView:
    """Shows what happens while it happens."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, refresh_per_second=4, transient=True)
        self._phase = ""
        self._doing = ""
        self._frame: Frame | None = None
        self._rates: list[float] = []
        self._last_message = ""
        self._last_line_s = 0.0
        self._started_s = time.monotonic()

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._live.stop()

    def say(self, text: str) -> None:
        """A line that stays."""
        elapsed = int(time.monotonic() - self._started_s)
        clock = f"[dim]{elapsed // 60:2d}:{elapsed % 60:02d}[/dim]"
        self._console.print(f"{clock}  {text}", soft_wrap=True)

    def phase(self, phase: Phase) -> None:
        """The traffic has changed."""
        self._phase = title(phase)
        self.say(
            f"[bold]traffic: {self._phase}[/bold] requests in flight "
            f"({phase.traffic.name} drafts: {1 - phase.traffic.hard_share:.0%} right)"
        )

    def doing(self, text: str) -> None:
        """What is going on at this moment."""
        self._doing = text
        self._refresh()

    def frame(self, frame: Frame) -> None:
        """A new look at the fleet."""
        self._frame = frame
        if frame.tokens_per_second is not None:
            self._rates = [*self._rates[-_HISTORY + 1 :], frame.tokens_per_second]
        if frame.message and frame.message != self._last_message:
            self._last_message = frame.message
            self.say(f"[cyan]{frame.tuning}[/cyan] {frame.message}")
        self._refresh()

    def _refresh(self) -> None:
        if self._console.is_terminal:
            self._live.update(self._panel())
        elif self._frame and time.monotonic() - self._last_line_s > _LINE_EVERY_SECONDS:
            self._last_line_s = time.monotonic()
            self.say(f"{self._phase}: {_line(self._frame)} — {self._doing}")

    def _panel(self) -> Panel:
        table = Table.grid(padding=(0, 2))
        if self._frame:
            frame = self._frame
            table.add_row(
                "depth by batch",
                f"[bold]{frame.depth}[/bold]",
                f"(generation {frame.generation}, {frame.overridden_pods} pods overridden)",
            )
            table.add_row("acceptance length", _number(frame.acceptance_length, 2), "")
            table.add_row(
                "tokens per second",
                _number(frame.tokens_per_second, 0),
                Text(sparkline(self._rates), style="green"),
            )
            table.add_row("tuning", frame.tuning, "")
        return Panel(Group(table, Text(self._doing, style="dim")), title=f"traffic: {self._phase}")


def _line(frame: Frame) -> str:
    return (
        f"depth {frame.depth}, acceptance length {_number(frame.acceptance_length, 2)}, "
        f"{_number(frame.tokens_per_second, 0)} tok/s, {frame.tuning}"
    )


def _number(value: float | None, digits: int) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


def sparkline(values: Sequence[float]) -> str:
    """Values from zero to their highest as one line of bars."""
    highest = max(values, default=0.0)
    if highest <= 0:
        return ""
    return "".join(_BARS[round(value / highest * (len(_BARS) - 1))] for value in values)


def sweep_table(sweeps: Sequence[SweepResult]) -> Table:
    """Tokens per second by static depth and phase; the best of each phase stands out."""
    table = Table(title="Static sweep: tokens per second at each depth", title_justify="left")
    table.add_column("traffic \\ depth", no_wrap=True)
    for depth in sweeps[0].rates:
        table.add_column(str(depth), justify="right")
    for result in sweeps:
        table.add_row(
            title(result.phase),
            *(
                f"[bold green]{rate:.0f}[/bold green]" if depth == result.best else f"{rate:.0f}"
                for depth, rate in result.rates.items()
            ),
        )
    return table


def summary_table(
    phases: Sequence[PhaseResult], sweeps: Sequence[SweepResult], static_depth: int
) -> Table:
    """Tuned against the user's static depth, per phase."""
    table = Table(
        title=f"Tuned against static depth {static_depth}, on the same pods, in turn",
        title_justify="left",
    )
    table.add_column("traffic", no_wrap=True)
    for column in ("depth", "best", "static tok/s", "tuned tok/s", "tuned / static [95 %]"):
        table.add_column(column, justify="right")
    for result, swept in zip(phases, sweeps, strict=True):
        table.add_row(
            title(result.phase),
            str(result.depth),
            str(swept.best),
            f"{_mean(result.pairs.theirs):.0f}",
            f"{_mean(result.pairs.ours):.0f}",
            str(result.ratio),
        )
    return table


def claim_lines(claims: Sequence[Claim]) -> Group:
    """Each claim with whether it held, or could not be told."""
    return Group(*(Text.assemble(_MARKS[claim.holds], claim.text) for claim in claims))


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
