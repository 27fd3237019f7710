"""Where a bench stands, while it runs."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)

from fathom.bench.heard import Heard


@contextmanager
def progress(console: Console) -> Iterator[Callable[[Heard], None]]:
    """A bar on a terminal; elsewhere a line whenever there is another one to say.

    Yields:
        What is told where it stands, as often as one likes.
    """
    if not console.is_terminal:
        yield _lines(console)
        return
    columns = (SpinnerColumn(), MofNCompleteColumn(), BarColumn(bar_width=20), TimeElapsedColumn())
    text = TextColumn("{task.description}", markup=False)
    with Progress(*columns, text, console=console) as bar:
        task = bar.add_task("", total=None)

        def tell(told: Heard) -> None:
            bar.update(task, description=told.now, total=told.runs, completed=len(told.results))

        yield tell


def _lines(console: Console) -> Callable[[Heard], None]:
    said = ""

    def tell(told: Heard) -> None:
        nonlocal said
        done = f"[{len(told.results)}/{told.runs}] " if told.runs is not None else ""
        if (line := f"{done}{told.now}") != said:
            said = line
            console.print(line, markup=False, highlight=False, soft_wrap=True)

    return tell
