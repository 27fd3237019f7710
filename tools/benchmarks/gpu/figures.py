"""From steps to what is said of them. Pure."""

from collections.abc import Sequence
from itertools import pairwise
from statistics import median

from pydantic import BaseModel, ConfigDict

from benchmarks.gpu.records import Dispatched, GraphUse, RecordedStep

_FEWEST_STEPS = 5


class Model(BaseModel):
    """Part of the report."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)


class DepthChange(Model):
    """What came of writing one depth while requests were in flight."""

    batch: int
    """Requests kept in flight."""
    depth: int
    drafted_after_ms: float | None
    """From the document on disk to the scheduling of the first step at the depth; null: never."""
    steps_until_verified: int | None
    """From that step to the first that verifies the depth in all its requests; null: never."""
    steps: int
    """Scheduled from the first at the depth on."""
    disobedient: int
    """Those steps that drafted for another depth, or, once it was verified, verified another."""

    @property
    def obeyed(self) -> bool:
        """Whether the change came about, and held."""
        return self.steps_until_verified is not None and not self.disobedient


def change_of(
    batch: int, depth: int, written_at_s: float, steps: Sequence[RecordedStep]
) -> DepthChange:
    """Judge a change of depth by the steps after it."""
    after = [step for step in steps if step.scheduled_at_s >= written_at_s]
    first = next((at for at, step in enumerate(after) if step.drafting == depth), None)
    if first is None:
        return DepthChange(
            batch=batch,
            depth=depth,
            drafted_after_ms=None,
            steps_until_verified=None,
            steps=0,
            disobedient=0,
        )
    obeying = after[first:]
    verified = next((at for at, step in enumerate(obeying) if step.verifies(depth)), None)
    return DepthChange(
        batch=batch,
        depth=depth,
        drafted_after_ms=1000 * (obeying[0].scheduled_at_s - written_at_s),
        steps_until_verified=verified,
        steps=len(obeying),
        disobedient=sum(
            step.drafting != depth
            or (
                verified is not None
                and at >= verified
                and step.least >= 0
                and not step.verifies(depth)
            )
            for at, step in enumerate(obeying)
        ),
    )


class TurnTimes(Model):
    """How long steps took in one turn, in milliseconds."""

    median_ms: float
    fastest_ms: float
    """A tenth of the steps were faster. It shows less of a machine whose processors others use."""


def turn_times(steps: Sequence[RecordedStep], batch: int, depth: int) -> TurnTimes | None:
    """Times of the steps that decode at exactly this batch and depth; None: too few.

    A step runs from the end of the one before it, which has to be of the same kind.
    """

    def of_kind(step: RecordedStep) -> bool:
        return (
            step.plain and step.batch == batch and step.drafting == depth and step.verifies(depth)
        )

    times_ms = sorted(
        1000 * (step.ended_at_s - before.ended_at_s)
        for before, step in pairwise(steps)
        if of_kind(before) and of_kind(step)
    )
    if len(times_ms) < _FEWEST_STEPS:
        return None
    return TurnTimes(median_ms=median(times_ms), fastest_ms=times_ms[len(times_ms) // 10])


class GraphCell(Model):
    """What the steps of one batch and depth got of the target's graphs."""

    batch: int
    depth: int
    full: int
    piecewise: int
    none: int


def graph_cells(use: GraphUse) -> tuple[GraphCell, ...]:
    """By batch, then by depth; those that had steps."""
    kinds = sorted({(each.batch, each.depth) for each in use.dispatched})
    return tuple(
        GraphCell(
            batch=batch,
            depth=depth,
            full=use.dispatched.get(Dispatched(batch, depth, "FULL"), 0),
            piecewise=use.dispatched.get(Dispatched(batch, depth, "PIECEWISE"), 0),
            none=use.dispatched.get(Dispatched(batch, depth, "NONE"), 0),
        )
        for batch, depth in kinds
    )
