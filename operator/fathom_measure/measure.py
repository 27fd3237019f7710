"""The order in which everything is measured."""

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from typing import Any, Final

from fathom_measure.engine import MeasureError, RunningEngine
from fathom_measure.load import run_load
from fathom_measure.plan import EnginePlan, LoadPlan, MeasurePlan

PREFIX: Final = "fathom-bench "
Load = Callable[[LoadPlan, float], dict[str, Any]]


class LineKind(str, Enum):  # noqa: UP042 - StrEnum is newer than the oldest Python of an engine's image
    """The kinds of lines. Each has `at`: seconds of a clock of which only differences count."""

    PLAN = "plan"
    """`runs`: how many rows there will be; `engines`: how many of each engine, in order."""
    STARTING = "starting"
    """An engine starts: `drafts`, whether it speculates."""
    RUNNING = "running"
    """A run begins: `data`, `concurrency`, `depth` (null: it does not speculate), `prompts`."""
    RESULT = "result"
    """A run ended: the same, and `result`, what of vLLM's own result is kept."""
    FAILED = "failed"
    """A run, or all that an engine was to do, came to nothing: `why`, a sentence."""
    END = "end"
    """Nothing more comes."""


def say(what: LineKind, **fields: object) -> None:
    """Print one line."""
    at = round(time.monotonic(), 1)
    line = json.dumps({"said": what.value, "at": at, **fields}, separators=(",", ":"))
    sys.stdout.write(f"{PREFIX}{line}\n")
    sys.stdout.flush()


def measure(plan: MeasurePlan, load: Load = run_load) -> None:
    """Measure all of a plan. What fails is said, and the rest is measured all the same."""
    rows = [plan.runs_of(engine) for engine in plan.engines]
    say(LineKind.PLAN, runs=plan.runs, engines=rows)
    for engine in plan.engines:
        say(LineKind.STARTING, drafts=bool(engine.depths))
        try:
            with _running(engine, plan) as running:
                running.wait_until_it_answers()
                # What is compared lies side by side in time: a machine may change by the hour.
                for each in plan.loads:
                    for depth in engine.depths or (None,):
                        if depth is not None:
                            running.hold_at(depth)
                        _run(each, depth, plan.load_seconds, load)
        except MeasureError as error:
            say(LineKind.FAILED, why=str(error))
    say(LineKind.END)


@contextmanager
def _running(engine: EnginePlan, plan: MeasurePlan) -> Iterator[RunningEngine]:
    running = RunningEngine(engine, plan)
    try:
        yield running
    finally:
        running.end()


def _run(plan: LoadPlan, depth: int | None, seconds: float, load: Load) -> None:
    what = {"data": plan.data, "concurrency": plan.concurrency, "depth": depth}
    say(LineKind.RUNNING, **what, prompts=plan.prompts)
    try:
        say(LineKind.RESULT, **what, result=load(plan, seconds))
    except MeasureError as error:
        say(LineKind.FAILED, **what, why=str(error))
