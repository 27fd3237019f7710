"""What came of the writes of one reconcile, the status among them. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from fathom.api import names
from fathom.api.status import ReportedStatus
from fathom.cluster.events import Event, EventReason, Severity, transitions
from fathom.cluster.kinds import CONFIG_MAP, POD, Kind
from fathom.cluster.manifest import Manifest, Seen
from fathom.cluster.observed_pods import ObservedPod
from fathom.cluster.snapshot import Objects, TunedObjects, status_in
from fathom.engine.depth import DepthDocument
from fathom.reconcile.loop_state import State
from fathom.reconcile.operations import Create, Delete, Operation, Patch, deleted, depth_nudges
from fathom.reconcile.write_retries import ApplyGuard, Outcome, Retry
from fathom.reconcile.writes import Writes, is_written
from fathom.tuning.interface import Action, TuningDecision


@dataclass(frozen=True, slots=True, kw_only=True)
class Guarded:
    """Operations of a reconcile: those to try, and those that the guard holds back for now."""

    tried: tuple[Operation, ...]
    held: tuple[tuple[Operation, str], ...]
    """Each with the sentence that says why."""
    guard: ApplyGuard
    """Knows what is wanted now."""


def guarded(operations: Sequence[Operation], guard: ApplyGuard, now_s: float) -> Guarded:
    """Sort out what is not tried again now."""
    settled = guard.settled(operations, now_s)
    found = [(each, settled.refusal(each, now_s)) for each in operations]
    return Guarded(
        tried=tuple(each for each, why in found if why is None),
        held=tuple((each, why) for each, why in found if why is not None),
        guard=settled,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """What came of one reconcile's decisions, and what follows from that at once."""

    writes: Writes
    outcome: Outcome
    guard: ApplyGuard
    refusals: tuple[str, ...]
    """Sentences; empty: everything is as it should be, or on its way."""
    document: DepthDocument | None
    """The depths asked for, as they are written; None: this engine's depth is not live."""
    decided: bool
    """Whether the tuner's decision is in the cluster. If not, it was not made: it is made again."""
    changed: bool
    """Whether a depth document was written."""
    nudges: tuple[Patch, ...]
    """What has kubelets refresh it sooner."""
    restart: Delete | None
    """The pod to restart for its age; None: none."""
    goes_on: bool
    """Whether something was written from which a next step may follow at once."""
    retry_after_s: float
    """Seconds until a write that was refused for good may be tried again."""
    unlisted: frozenset[tuple[Kind, str]]
    """What the next reconcile has to read by name."""

    @property
    def moved(self) -> bool:
        """Whether the cluster is not any more, or will not be, as it was read."""
        left_behind = any(each.left_behind for each in self.writes.taken)
        return self.outcome.tried or left_behind or bool(self.nudges)


def applied(
    writes: Writes,
    operations: Guarded,
    outcome: Outcome,
    *,
    objects: Objects,
    decision: TuningDecision,
    now_s: float,
) -> Applied:
    """Put together what came of it.

    Args:
        writes: what was to be done.
        operations: which of it was tried.
        outcome: what came of that.
        objects: the cluster as it was read before.
        decision: the tuner's.
        now_s: Unix seconds.
    """
    name, guard = objects.key.name, operations.guard.after(outcome, now_s)
    left = (*outcome.left(writes.todo), *writes.barred)
    recorded = not _holds(left, names.tuning_config_map(name))
    decided = not _holds(left, names.depth_config_map(name))
    document = writes.document if decided else objects.depth
    before = objects.depth
    changed = (
        decided
        and document is not None
        and (before is None or before.generation != document.generation)
    )
    pod = writes.refresh.pod
    return Applied(
        writes=writes,
        outcome=outcome,
        guard=guard,
        refusals=_refusals(writes, operations, outcome, guard, now_s),
        document=document,
        decided=decided,
        changed=changed,
        nudges=(
            nudges(objects, objects.leaders, document, decision, changed=changed, now_s=now_s)
            if decided
            else ()
        ),
        # Only once its record is written: a second one must not follow by mistake.
        restart=(
            deleted(objects, POD, pod, writes.refresh.why) if pod is not None and recorded else None
        ),
        goes_on=_goes_on(writes, outcome, objects),
        retry_after_s=guard.retry_after_s(now_s),
        unlisted=frozenset({*writes.unlisted, *_unseen(outcome, left)}),
    )


def _refusals(
    writes: Writes, operations: Guarded, outcome: Outcome, guard: ApplyGuard, now_s: float
) -> tuple[str, ...]:
    """In the order of the operations; nothing is said of those that were not reached."""
    said = {id(operation): why for operation, why in (*operations.held, *outcome.failed)}
    reached = list(writes.todo)
    if outcome.broke_off is not None:
        last = next(i for i, each in enumerate(reached) if each is outcome.broke_off[0])
        reached = reached[: last + 1]
    refusals = tuple(said[id(each)] for each in reached if id(each) in said)
    # What is right at this moment may be changed again at the next.
    return refusals or guard.fights(now_s)


def nudges(
    objects: TunedObjects,
    pods: Sequence[ObservedPod],
    document: DepthDocument | None,
    decision: TuningDecision,
    *,
    changed: bool,
    now_s: float,
) -> tuple[Patch, ...]:
    """For pods whose depths a written document changed, or for all when the tuner asks again.

    Args:
        objects: what the cluster held before.
        pods: those that read the document.
        document: as it is asked for; None: there is none.
        decision: the tuner's.
        changed: whether it was written.
        now_s: Unix seconds.
    """
    again_at_s = now_s if decision.action is Action.POKE else None
    # Each pod's schedule would be compared in each reconcile.
    if document is None or not (changed or again_at_s is not None):
        return ()
    return depth_nudges(objects, pods, objects.depth, document, again_at_s=again_at_s)


def _goes_on(writes: Writes, outcome: Outcome, objects: Objects) -> bool:
    """Whether a next step may follow from what was written, of which no watch tells."""
    if _holds(outcome.written, names.tuning_config_map(objects.key.name)) and not is_written(
        writes.checkpoint, objects
    ):
        return True
    # Of a deletion a watch tells, once it is done; until then it would be done again.
    return any(each.kind != CONFIG_MAP and not isinstance(each, Delete) for each in outcome.written)


def _unseen(outcome: Outcome, left: Sequence[Operation]) -> Iterator[tuple[Kind, str]]:
    """What may be there although it was not read: one creation was refused for that."""
    if outcome.outdated and outcome.broke_off and isinstance(outcome.broke_off[0], Create):
        yield from ((each.kind, each.name) for each in left if isinstance(each, Create))


def wrote_tuning(operations: Sequence[Operation], name: str) -> bool:
    """Whether what should survive a restart is among these."""
    return _holds(operations, names.tuning_config_map(name))


def _holds(operations: Sequence[Operation], config_map: str) -> bool:
    return any(each.kind == CONFIG_MAP and each.name == config_map for each in operations)


def status_step(
    state: State, new: ReportedStatus, live: ReportedStatus | None, now_s: float
) -> tuple[State, float]:
    """Whether the status says anything new, or has said nothing for too long.

    Args:
        state: what is remembered.
        new: the status as it should be.
        live: as it is; None: there is none that can be read.
        now_s: Unix seconds.

    Returns:
        What is remembered, and seconds until it is to be written; 0: now; infinity: it says nothing
        new.
    """
    said = state.said
    if said.stands(new, live):
        wait_s = said.rest_s(live, now_s)
        if said.refused is not None and wait_s > said.refused.pause_s:
            # What was refused is not to be said any more.
            state = replace(state, said=replace(said, refused=None))
    else:
        wait_s = said.wait_s(new, live, now_s)
    if wait_s <= 0:
        state = replace(state, objects=None)
    return state, max(0.0, wait_s)


def after_written(
    state: State,
    new: ReportedStatus,
    written: Manifest,
    objects: TunedObjects,
    *,
    now_s: float,
) -> tuple[State, tuple[Event, ...]]:
    """What is remembered, and told, of a status that was written."""
    said = state.said
    kept, version = status_in(written, type(new)), Seen.of(written).resource_version
    # One object for both, as they are most often equal.
    shared = new if kept == new else kept
    events = transitions(new, said.written or objects.status)
    after = said.after(new, kept=shared, version=version, now_s=now_s)
    return replace(state, said=after), tuple(events)


def after_refused(
    state: State, kind: Kind, why: str, now_s: float
) -> tuple[State, Retry, tuple[Event, ...]]:
    """What is remembered of a status that was refused, and, once it has lasted, told."""
    before = state.said.refused
    retry = before.again(now_s) if before else Retry(now_s)
    state = replace(state, said=replace(state.said, refused=retry))
    if not retry.lasting or (before and before.lasting):
        return state, retry, ()
    message = (
        "the status of this resource cannot be written, so it is out of date; pods and depth are "
        f"still managed. {kind.plural}/status is for the operator to patch: does "
        "its role allow it, which policy or webhook refuses it, is the CRD as new as the "
        f"operator? The API server says: {why}"
    )
    return state, retry, (Event(Severity.WARNING, EventReason.STATUS_REFUSED, message),)
