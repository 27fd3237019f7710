"""What the benchmark shows: progress with the time left, and the tables at the end."""

import time
from types import TracebackType
from typing import Final, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

_MINUTE: Final = 60


class BenchView:
    """A bar on a terminal; lines, with the time left in them, everywhere."""

    def __init__(self, console: Console, seconds: float) -> None:
        """Count down from so many planned seconds."""
        self._console = console
        self._planned = seconds
        self._done = 0.0
        self._reached = 0.0
        self._started_s = time.monotonic()
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=None),
            TextColumn("{task.fields[left]}"),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self._progress.add_task("starting", total=seconds, left="")

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._progress.stop()

    @property
    def minutes(self) -> float:
        """Since the start."""
        return (time.monotonic() - self._started_s) / _MINUTE

    def say(self, text: str) -> None:
        """A line that stays."""
        self._console.print(
            f"[dim]{clock(self.minutes * _MINUTE)} · {self._left()}[/dim]  {text}", soft_wrap=True
        )

    def doing(self, text: str) -> None:
        """What is going on at this moment."""
        self._progress.update(self._task, description=text)

    def advance(self, seconds: float) -> None:
        """So much of the plan is done."""
        self._done += seconds
        self._progress.update(self._task, completed=self._done, left=self._left())

    def reached(self, seconds: float, share: float) -> None:
        """Advance to this share of a part planned to take `seconds`, whose pace is not known."""
        now = seconds * min(share, 1.0)
        self.advance(now - self._reached)
        self._reached = now

    def _left(self) -> str:
        return f"{clock(max(0.0, self._planned - self._done))} left"


def clock(seconds: float) -> str:
    """Minutes and seconds."""
    whole = round(seconds)
    return f"{whole // _MINUTE:2d}:{whole % _MINUTE:02d}"
