"""What the pod of a bench has logged, and how far it is. Pure."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)

from fathom.text import counted
from fathom_measure.measure import PREFIX, LineKind

_SHOWN: Final = 200
"""Characters of a line that is not understood."""


class _Said(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class LoadResult(_Said):
    """What of vLLM's own result is kept, by vLLM's names."""

    completed: int
    failed: int = 0
    total_input_tokens: int
    output_throughput: float
    mean_tpot_ms: float
    mean_ttft_ms: float
    spec_decode_num_drafts: int = 0
    spec_decode_per_position_acceptance_rates: tuple[float, ...] = ()


class _PlanLine(_Said):
    said: Literal[LineKind.PLAN]
    runs: int


class _StartingLine(_Said):
    said: Literal[LineKind.STARTING]
    drafts: bool


class _RunLine(_Said):
    data: str
    concurrency: int
    depth: int | None

    @property
    def name(self) -> str:
        """Name of the run, as people read it."""
        depth = "true off" if self.depth is None else f"depth {self.depth}"
        return f"{self.data}, {self.concurrency} at a time, {depth}"


class _RunningLine(_RunLine):
    said: Literal[LineKind.RUNNING]
    prompts: int


class ResultLine(_RunLine):
    """A run that was measured."""

    said: Literal[LineKind.RESULT]
    result: LoadResult


class _FailedLine(_RunLine):
    said: Literal[LineKind.FAILED]
    why: str
    data: str = ""
    """Empty: no run, but all that an engine was to do."""
    concurrency: int = 0
    depth: int | None = None


class _EndLine(_Said):
    said: Literal[LineKind.END]


_AnyLine = _PlanLine | _StartingLine | _RunningLine | ResultLine | _FailedLine | _EndLine
_LINE: TypeAdapter[_AnyLine] = TypeAdapter(Annotated[_AnyLine, Field(discriminator="said")])


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """Where a bench stands."""

    runs: int | None = None
    """How many there will be; None: not known yet."""
    now: str = ""
    """What it is at, in words."""
    results: tuple[ResultLine, ...] = ()
    failures: tuple[str, ...] = ()
    """What came to nothing, a sentence each."""
    ended: bool = False
    """Whether nothing more comes."""
    said: int = 0
    """Lines that it rests on."""


def heard(log: str) -> Heard:
    """Read a log from its beginning; what it holds besides is passed over."""
    runs, now, ended = None, "", False
    lines = list(_lines(log))
    results: list[ResultLine] = []
    failures: list[str] = []
    for line in lines:
        match line:
            case _PlanLine():
                runs = line.runs
            case _StartingLine():
                now = f"starts the engine {'with' if line.drafts else 'without'} speculation"
            case _RunningLine():
                now = f"{line.name}: {counted(line.prompts, 'request')}"
            case ResultLine():
                results.append(line)
            case _FailedLine():
                failures.append(f"{line.name}: {line.why}" if line.data else line.why)
            case _EndLine():
                ended = True
    return Heard(
        runs=runs,
        now=now,
        results=tuple(results),
        failures=tuple(failures),
        ended=ended,
        said=len(lines),
    )


def _lines(log: str) -> Iterator[_AnyLine]:
    for line in log.splitlines(keepends=True):
        # The last may be cut off in the middle: the next look reads the whole.
        if not (line.startswith(PREFIX) and line.endswith("\n")):
            continue
        said = line.removeprefix(PREFIX)
        try:
            yield _LINE.validate_json(said)
        except ValidationError:
            why = f"the pod wrote what this Fathom does not understand: {said.strip()[:_SHOWN]}"
            yield _FailedLine(said=LineKind.FAILED, why=why)


@contextmanager
def progress(console: Console) -> Iterator[Callable[[Heard], None]]:
    """A bar on a terminal; elsewhere a line whenever there is another one to say.

    Yields:
        What is told where it stands, as often as one likes.
    """
    if not console.is_terminal:
        yield _progress_lines(console)
        return
    columns = (SpinnerColumn(), MofNCompleteColumn(), BarColumn(bar_width=20), TimeElapsedColumn())
    text = TextColumn("{task.description}", markup=False)
    with Progress(*columns, text, console=console) as bar:
        task = bar.add_task("", total=None)

        def tell(told: Heard) -> None:
            bar.update(task, description=told.now, total=told.runs, completed=len(told.results))

        yield tell


def _progress_lines(console: Console) -> Callable[[Heard], None]:
    said = ""

    def tell(told: Heard) -> None:
        nonlocal said
        done = f"[{len(told.results)}/{told.runs}] " if told.runs is not None else ""
        if (line := f"{done}{told.now}") != said:
            said = line
            console.print(line, markup=False, highlight=False, soft_wrap=True)

    return tell
