"""What the demo shows: live on a terminal, line by line elsewhere, and the summary at the end."""

import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Final, Self

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from fathom.engine.depth import Schedule, depth_at, merged, summary
from fathom.text import counted
from local_cluster.demo.measure import Comparison, Turns
from local_cluster.demo.observe import Frame
from local_cluster.demo.phases import title
from local_cluster.demo.verdict import Claim
from local_cluster.engine.traffic import Phase

LINE_EVERY_SECONDS: Final = 6.0
_HISTORY: Final = 48
_HEIGHTS: Final = "▁▂▃▄▅▆▇█"
_BAR_WIDTH: Final = 24
_MARKS: Final = {True: ("✔ ", "green"), False: ("✘ ", "bold red"), None: ("? ", "bold yellow")}


class DemoView:
    """Shows what happens while it happens."""

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        self._console = console
        self._clock = clock
        self._live = Live(console=console, refresh_per_second=4, transient=True)
        self._phase = ""
        self._batch = 1
        self._page = ""
        self._doing = ""
        self._frame: Frame | None = None
        self._rates: list[float] = []
        self._depths: list[int] = []
        self._turns = Turns()
        self._why = ""
        self._line_at_s = float("-inf")
        self._started_s = clock()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.end()

    def end(self) -> None:
        """What follows is printed where the panel was."""
        self._live.stop()

    def say(self, text: str) -> None:
        """A line that stays."""
        elapsed = int(self._clock() - self._started_s)
        clock = f"[dim]{elapsed // 60:2d}:{elapsed % 60:02d}[/dim]"
        self._console.print(f"{clock}  {text}", soft_wrap=True, highlight=False)

    def page(self, url: str) -> None:
        """Where the operator's page is."""
        self._page = url
        self.say(f"the operator's page, live: [bold]{url}[/bold] (on this machine, until the end)")

    def traffic(self, phase: Phase, batch: int) -> None:
        """The traffic has changed; so many of its requests share a step."""
        self._phase, self._batch, self._turns = title(phase), batch, Turns()
        if self._console.is_terminal:
            self._live.start()
        right = 1 - phase.traffic.hard_share
        self.say(
            f"[bold]traffic: {self._phase}[/bold] requests in flight, {batch} at each engine; "
            f"{right:.0%} of the drafted tokens are right"
        )

    def doing(self, text: str) -> None:
        """What happens at this moment."""
        self._doing = text
        self._refresh()

    def compare(self, turns: Turns, pairs: int) -> None:
        """What a comparison has so far."""
        self._turns = turns
        taken = len(turns.tuned) + len(turns.static)
        text = f"tuned and static in turn: slice {taken + 1} of {2 * pairs}"
        if turns.tuned and turns.static and not self._console.is_terminal:
            tuned, static = (_mean(turns.rates(each)) for each in (turns.tuned, turns.static))
            text += f"; tuned {tuned:.0f}, static {static:.0f} tokens {_unit(turns)} so far"
        self.doing(text)

    def frame(self, frame: Frame) -> None:
        """A new look at the fleet."""
        self._frame = frame
        self._depths = [*self._depths[-_HISTORY + 1 :], depth_at(frame.schedule, self._batch)]
        if frame.tokens_per_second is not None:
            self._rates = [*self._rates[-_HISTORY + 1 :], frame.tokens_per_second]
        if frame.why and frame.why != self._why:
            self._why = frame.why
            self.say(f"[cyan]why:[/cyan] {frame.why}")
        self._refresh()

    def _refresh(self) -> None:
        if self._console.is_terminal:
            self._live.update(self.panel())
        elif self._frame is not None and self._clock() - self._line_at_s > LINE_EVERY_SECONDS:
            self._line_at_s = self._clock()
            self.say("; ".join(filter(None, (f"{self._phase}: {_line(self._frame)}", self._doing))))

    def panel(self) -> Panel:
        """Everything at this moment."""
        table = Table.grid(padding=(0, 2))
        table.add_column(no_wrap=True)
        table.add_column()
        if (frame := self._frame) is not None:
            table.add_row("depth by batch", Group(*depth_bars(frame.schedule)))
            if pods := frame.overridden_pods:
                table.add_row("", Text(f"{counted(pods, 'pod')} at another, to measure it", "dim"))
            table.add_row(f"at batch {self._batch}", Text(_strip(self._depths), "bold cyan"))
            table.add_row(
                "tokens per second",
                Text.assemble((sparkline(self._rates), "green"), f" {_rate(frame)}"),
            )
            for name, text in _turn_bars(self._turns):
                table.add_row(name, text)
            table.add_row("why", self._why or "nothing has been decided yet")
            table.add_row("page", self._page)
        return Panel(
            Group(table, Text(self._doing, style="dim")),
            title=f"traffic: {self._phase}",
            width=min(self._console.width, 100),
        )


def depth_bars(schedule: Schedule) -> list[Text]:
    """A bar for each range of batches that has a depth of its own."""
    parts = merged(schedule)
    rows = []
    for part in parts:
        last = part is parts[-1]
        batches = f"{part.first}+" if last else f"{part.first}-{part.last}"
        if part.first == part.last and not last:
            batches = f"{part.first}"
        rows.append(
            Text.assemble(f"{batches:>5} ", ("█" * 2 * part.depth, "cyan"), f" {part.depth}")
        )
    return rows


def _line(frame: Frame) -> str:
    return f"depth {summary(frame.schedule)}, {_rate(frame)} tokens per second"


def _rate(frame: Frame) -> str:
    rate = frame.tokens_per_second
    return "–" if rate is None else f"{rate:.0f}"


def _strip(depths: Sequence[int]) -> str:
    """Depth over time, a digit a look."""
    return "".join(str(min(depth, 9)) for depth in depths)


def sparkline(values: Sequence[float]) -> str:
    """Values from zero to their highest as one line of bars."""
    highest = max(values, default=0.0)
    if highest <= 0:
        return ""
    return "".join(_HEIGHTS[round(value / highest * (len(_HEIGHTS) - 1))] for value in values)


def bar(value: float, highest: float, width: int = _BAR_WIDTH) -> str:
    """A value from zero to the highest as a bar of so many characters at most."""
    eighths = round(8 * width * value / highest) if highest > 0 else 0
    return "█" * (eighths // 8) + "▏▎▍▌▋▊▉"[: eighths % 8][-1:]


def _turn_bars(turns: Turns) -> list[tuple[str, Text]]:
    """A bar for each side of a comparison that is not over yet."""
    if not (turns.tuned and turns.static):
        return []
    tuned, static = (_mean(turns.rates(each)) for each in (turns.tuned, turns.static))
    return [
        (name, Text.assemble((bar(rate, max(tuned, static)), style), f" {rate:.0f} {_unit(turns)}"))
        for name, rate, style in (("tuned", tuned, "green"), ("static", static, "dim"))
    ]


def speed_table(comparisons: Sequence[Comparison], static_depth: int) -> Group:
    """Tuned compared with the user's static depth: a bar for each."""
    by_threads = all(each.turns.by_threads for each in comparisons)
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("traffic", no_wrap=True)
    table.add_column("depth", no_wrap=True)
    table.add_column(f"tokens {_unit(comparisons[0].turns)}", no_wrap=True)
    table.add_column("", justify="right")
    if by_threads:
        table.add_column("per second", justify="right")
    for each in comparisons:
        turns = each.turns
        sides = ((f"static {static_depth}", turns.static), (f"tuned {each.depth}", turns.tuned))
        highest = max(_mean(turns.rates(slices)) for _, slices in sides)
        for (name, slices), style in zip(sides, ("dim", "green"), strict=True):
            rate = _mean(turns.rates(slices))
            wall = f"{_mean([part.tokens_per_second for part in slices]):.0f}"
            table.add_row(
                title(each.phase) if slices is turns.static else "",
                name,
                Text(bar(rate, highest), style),
                f"{rate:.0f}",
                *((wall,) if by_threads else ()),
            )
    heading = f"Tuned compared with static depth {static_depth}, on the same pods in turn"
    return Group(Text(heading, "bold"), table)


def _unit(turns: Turns) -> str:
    return "per processor second" if turns.by_threads else "per second"


def claim_lines(claims: Sequence[Claim]) -> Group:
    """Each claim with whether it held, or is not clear."""
    return Group(*(Text.assemble(_MARKS[claim.holds], claim.text) for claim in claims))


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
