"""How far a set-up is: bars on a terminal, lines elsewhere."""

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    Task,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from fathom.times import duration

LINE_EVERY_SECONDS: Final = 20.0
"""Between two lines of a task that is at the same step."""
_MEAN_SECONDS: Final = 3600.0
"""The time that is left follows from the mean speed since a task began: steps differ."""
_POLL_SECONDS: Final = 0.5


@contextmanager
def setup_progress(console: Console | None = None) -> Iterator[Progress]:
    """Shows each task with how far it is, how long it has taken and how long it takes yet."""
    console = console or Console(stderr=True)
    progress = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeElapsedColumn(),
        TextColumn("so far,"),
        TimeRemainingColumn(),
        TextColumn("more"),
        console=console,
        disable=not console.is_terminal,
        speed_estimate_period=_MEAN_SECONDS,
    )
    if console.is_terminal:
        with progress:
            yield progress
        return
    over, lines = threading.Event(), ProgressLines()

    def print_new() -> None:
        for line in lines.new(progress.tasks, time.monotonic()):
            console.print(line, soft_wrap=True, highlight=False, markup=False)

    def watch() -> None:
        while not over.wait(_POLL_SECONDS):
            print_new()

    watching = threading.Thread(target=watch, name="progress", daemon=True)
    watching.start()
    try:
        yield progress
    finally:
        over.set()
        watching.join()
        print_new()


@dataclass(slots=True)
class ProgressLines:
    """What is to be printed of tasks where nothing can be drawn."""

    _printed: dict[TaskID, tuple[str, float]] = field(default_factory=dict)
    """The last description of each task, and when it was printed."""
    _finished: set[TaskID] = field(default_factory=set)

    def new(self, tasks: Sequence[Task], now_s: float) -> list[str]:
        """A line for each task that began, took its next step, ended, or has lasted a while."""
        return [line for task in tasks if (line := self._new(task, now_s))]

    def _new(self, task: Task, now_s: float) -> str:
        if task.id in self._finished:
            return ""
        before, printed_s = self._printed.get(task.id, ("", 0.0))
        if task.finished:
            self._finished.add(task.id)
            return f"{task.description}: done ({duration(task.finished_time or 0.0)})"
        if before == task.description and now_s - printed_s < LINE_EVERY_SECONDS:
            return ""
        self._printed[task.id] = (task.description, now_s)
        if before != task.description:
            return task.description
        return f"{task.description}: {_how_far(task)}"


def _how_far(task: Task) -> str:
    """How far a task is, and how long it takes yet if it is known."""
    if task.total is None:
        return f"{duration(task.elapsed or 0.0)} so far"
    remaining = task.time_remaining
    more = "" if remaining is None else f", about {duration(remaining)} more"
    return f"{task.percentage:.0f} %{more}"


@contextmanager
def progress_or_new(progress: Progress | None) -> Iterator[Progress]:
    """The caller's, which stays open, else one on stderr."""
    if progress is not None:
        yield progress
        return
    with setup_progress() as new:
        yield new
