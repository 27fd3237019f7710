"""What the pod of a bench has logged, how far it is, and how long it will take. Pure."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import fmean
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
from fathom.times import duration
from fathom_measure.measure import PREFIX, LineKind

_SHOWN: Final = 200
"""Characters of a line that is not understood."""


class _Said(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class _Line(_Said):
    at: float | None = None
    """Seconds, of a clock of which only differences count; None: an earlier program said it."""


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


class _PlanLine(_Line):
    said: Literal[LineKind.PLAN]
    runs: int
    engines: tuple[int, ...] = ()
    """Runs of each engine; empty: an earlier program said it."""


class _StartingLine(_Line):
    said: Literal[LineKind.STARTING]
    drafts: bool


class _RunLine(_Line):
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


class _EndLine(_Line):
    said: Literal[LineKind.END]


_AnyLine = _PlanLine | _StartingLine | _RunningLine | ResultLine | _FailedLine | _EndLine
_LINE: TypeAdapter[_AnyLine] = TypeAdapter(Annotated[_AnyLine, Field(discriminator="said")])


@dataclass(frozen=True, slots=True, kw_only=True)
class ToCome:
    """What is left of a plan, and how long what has ended took."""

    runs: int
    """With the one that is under way."""
    starts: int
    """Starts of engines, with the one that is under way."""
    starting: bool
    """Whether an engine starts now."""
    runs_s: tuple[float, ...]
    """Seconds of each run that was measured."""
    starts_s: tuple[float, ...]
    """Seconds of each start of an engine that then answered."""

    def seconds(self, under_way_s: float) -> float | None:
        """How long it will take, if all goes on as it did.

        Args:
            under_way_s: since the last line.

        Returns:
            None: it is not known. No run has ended yet, or the last one takes longer than they did.
        """
        if not self.runs_s or not self.starts_s:
            return None
        run_s, start_s = fmean(self.runs_s), fmean(self.starts_s)
        spent_s = min(max(0.0, under_way_s), start_s if self.starting else run_s)
        left_s = self.runs * run_s + self.starts * start_s - spent_s
        return left_s if left_s > 0 else None


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
    to_come: ToCome | None = None
    """None: not known."""

    @property
    def done(self) -> int:
        """Runs that are over, whether they were measured or not."""
        if self.to_come is None or self.runs is None:
            return len(self.results)
        return self.runs - self.to_come.runs

    def left(self, under_way_s: float) -> str:
        """How long it will take, as people say it; empty: not known.

        Args:
            under_way_s: since the last line.
        """
        seconds = self.to_come.seconds(under_way_s) if self.to_come else None
        return "" if seconds is None else f", about {duration(seconds)} left"


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
        to_come=_to_come(lines),
    )


def _to_come(lines: Sequence[_AnyLine]) -> ToCome | None:
    """None: the plan is not known, or an earlier program says no times."""
    timed = [(each, each.at) for each in lines if each.at is not None]
    rows = next((each.engines for each, _ in timed if isinstance(each, _PlanLine)), ())
    if not rows:
        return None
    starts, left, since_s = 0, 0, 0.0
    runs_s: list[float] = []
    starts_s: list[float] = []
    under_way: _AnyLine | None = None
    for line, at_s in timed:
        match under_way, line:
            case _StartingLine(), _RunningLine():
                starts_s.append(at_s - since_s)
            case _RunningLine(), ResultLine():
                runs_s.append(at_s - since_s)
        if isinstance(under_way, _RunningLine):
            left -= 1
        if isinstance(line, _StartingLine):
            starts, left = starts + 1, sum(rows[starts : starts + 1])
        elif isinstance(line, _EndLine) or (isinstance(line, _FailedLine) and not line.data):
            left = 0
        under_way, since_s = line, at_s
    starting = isinstance(under_way, _StartingLine)
    return ToCome(
        runs=max(0, left) + sum(rows[starts:]),
        starts=len(rows[starts:]) + starting,
        starting=starting,
        runs_s=tuple(runs_s),
        starts_s=tuple(starts_s),
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
def progress(console: Console, now_s: Callable[[], float]) -> Iterator[Callable[[Heard], None]]:
    """A bar on a terminal; elsewhere a line whenever there is another one to say.

    Args:
        console: where it is shown.
        now_s: seconds of the clock by which what is under way takes time.

    Yields:
        What is told where it stands, as often as one likes.
    """
    said, since_s = -1, 0.0

    def left(told: Heard) -> str:
        nonlocal said, since_s
        at_s = now_s()
        if told.said != said:
            said, since_s = told.said, at_s
        return told.left(at_s - since_s)

    if not console.is_terminal:
        yield _progress_lines(console, left)
        return
    columns = (SpinnerColumn(), MofNCompleteColumn(), BarColumn(bar_width=20), TimeElapsedColumn())
    text = TextColumn("{task.description}", markup=False)
    with Progress(*columns, text, console=console) as bar:
        task = bar.add_task("", total=None)

        def tell(told: Heard) -> None:
            where = f"{told.now}{left(told)}"
            bar.update(task, description=where, total=told.runs, completed=told.done)

        yield tell


def _progress_lines(console: Console, left: Callable[[Heard], str]) -> Callable[[Heard], None]:
    said = ""

    def tell(told: Heard) -> None:
        nonlocal said
        done = f"[{told.done}/{told.runs}] " if told.runs is not None else ""
        time_left = left(told)
        # That less time is left is nothing new.
        if (line := f"{done}{told.now}") != said:
            said = line
            console.print(f"{line}{time_left}", markup=False, highlight=False, soft_wrap=True)

    return tell
