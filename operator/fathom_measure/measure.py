"""The order in which everything is measured."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from fathom_measure.engine import MeasureError, RunningEngine
from fathom_measure.load import run_load
from fathom_measure.plan import EnginePlan, LoadPlan, MeasurePlan
from fathom_measure.said import LineKind, say

Load = Callable[[LoadPlan, float], dict[str, Any]]


def measure(plan: MeasurePlan, load: Load = run_load) -> None:
    """Measure all of a plan. What fails is said, and the rest is measured all the same."""
    say(LineKind.PLAN, runs=plan.runs)
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
