"""Many simulations on all processors, with a bar that moves."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

J = TypeVar("J")
R = TypeVar("R")


def simulated(
    work: Callable[[J], R],
    todo: Sequence[J],
    label: Callable[[J], str],
    *,
    jobs: int,
    console: Console,
) -> Iterator[R]:
    """What comes of each, in the order in which they end.

    Args:
        work: what is done with one, in a process of its own if there are several.
        todo: all of them.
        label: what the bar says of one.
        jobs: processes.
        console: of the bar.
    """
    columns = (
        TextColumn("worlds simulated"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
    )
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("", total=len(todo))
        tenth = max(1, len(todo) // 10)
        for done, (job, result) in enumerate(_finished(work, todo, jobs), start=1):
            progress.update(task, completed=done, description=label(job))
            if not console.is_terminal and done % tenth == 0:
                # In a file or a log no bar moves.
                console.print(f"{done} of {len(todo)} worlds simulated")
            yield result


def _finished(work: Callable[[J], R], todo: Sequence[J], jobs: int) -> Iterator[tuple[J, R]]:
    if jobs == 1:
        yield from ((job, work(job)) for job in todo)
        return
    # Not by fork: the progress bar is a thread, and a lock it holds would be held for ever.
    with ProcessPoolExecutor(jobs, mp_context=get_context("forkserver")) as pool:
        futures = {pool.submit(work, job): job for job in todo}
        for future in as_completed(futures):
            yield futures[future], future.result()
