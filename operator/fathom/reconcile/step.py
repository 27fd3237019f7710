"""One reconcile, as pure steps: what is read goes in, what is to be done comes out.

`fathom.runtime.deployment_loop` reads, performs and remembers, and does nothing else. What an API
server answered comes back as the argument of the next step:

1. `begun`: what was read of the cluster, and what is known of earlier reconciles;
2. `intended`: which spec is to be carried out, and whether anything new may start;
3. `step`: what the tuner decides, and all that is to be written;
4. `after_writes`: what came of that, and what follows at once;
5. `concluded` and `found_of`: what is remembered, what people are told, when to read again;
6. `fathom.reconcile.applied`: whether the status says anything new, and what came of it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from fathom.api.status import QualityStatus
from fathom.cluster.events import Event, EventReason, Severity
from fathom.cluster.kinds import CONFIG_MAP
from fathom.cluster.observed_pods import ObservedPod
from fathom.cluster.snapshot import Objects, Snapshot
from fathom.manifests.config_maps import tuning_config_map
from fathom.model_facts import ModelFacts
from fathom.model_refs import ModelRef
from fathom.reconcile.annotations import bad_pins
from fathom.reconcile.applied import Applied, Guarded, applied, guarded, wrote_tuning
from fathom.reconcile.checkpoint import Checkpoint, worth_keeping
from fathom.reconcile.desired_state import DesiredState
from fathom.reconcile.fetching import FetchFindings
from fathom.reconcile.findings import findings_of
from fathom.reconcile.holding import (
    Hold,
    at_rest,
    hold_of,
    refused_before,
    running_revisions,
)
from fathom.reconcile.intent import Intent, JudgedBy
from fathom.reconcile.loop_state import (
    Decide,
    LoopState,
    Memo,
    TunerFailed,
    decided_by,
    state_data,
)
from fathom.reconcile.operations import Operation, brought_about
from fathom.reconcile.specs import newest_of
from fathom.reconcile.status_input import Finding, Findings
from fathom.reconcile.training import TrainingStep, not_made_yet, training_step
from fathom.reconcile.tuning_input import tuning_snapshot
from fathom.reconcile.tuning_report import report
from fathom.reconcile.write_retries import Outcome
from fathom.reconcile.writes import Build, Writes, is_written, selected_again, writes_of
from fathom.resource import SpeculativeDeployment
from fathom.tuning.interface import TuningDecision
from fathom.validation.candidate import Cluster

# -- what was read


def begun(state: LoopState | None, objects: Objects, now_s: float) -> LoopState:
    """What is remembered when a reconcile begins."""
    if state is None or state.uid != objects.metadata.uid:
        state = LoopState.recalled(objects, now_s)
    elif state.checkpoint.unread:
        # Somebody may have repaired it, or taken it away.
        state = replace(state, checkpoint=Checkpoint.of(objects.tuning))
    return state.with_read(objects, now_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Intended:
    state: LoopState
    intent: Intent
    hold: Hold | None
    """What keeps the wanted revision from its first pod; None: nothing does."""


def intended(
    state: LoopState,
    objects: Objects,
    models: Mapping[ModelRef, ModelFacts],
    cluster: Cluster,
    *,
    memo: Memo,
    now_s: float,
) -> Intended:
    """Which spec is to be carried out.

    Args:
        state: what is remembered.
        objects: the cluster as it was read.
        models: what is known of the models in use.
        cluster: what the cluster offers.
        memo: of the last intent.
        now_s: Unix seconds.
    """
    checkpoint = replace(state.checkpoint, models=worth_keeping(models))
    intent = memo.intent.of(
        objects.resource,
        JudgedBy(
            checkpoint=checkpoint,
            models=models,
            cluster=cluster,
            running=running_revisions(objects),
            renderings={each.revision: each.rendering for each in objects.workloads},
            at_rest=at_rest(objects),
            refused=refused_before(objects),
        ),
    )
    state = replace(state, checkpoint=checkpoint)
    if intent.wanted is None:
        return Intended(state=state, intent=intent, hold=None)
    first_seen = state.first_seen.of(intent.revision, now_s)
    hold = hold_of(intent, checkpoint, objects, models, first_seen=first_seen, now_s=now_s)
    if hold is None or not hold.frozen:
        # By now it is known anyway.
        checkpoint = checkpoint.without_unread()
    state = replace(state, checkpoint=checkpoint, first_seen=first_seen)
    return Intended(state=state, intent=intent, hold=hold)


def with_unread(state: LoopState, snapshot: Snapshot) -> LoopState:
    """With the pods whose counters cannot be read."""
    pods = {pod.name for pod in snapshot.objects.leaders}
    return state.with_unread(snapshot.metrics_failures, pods, snapshot.now_s)


# -- what is done


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """What a step goes by."""

    intent: Intent
    desired: DesiredState
    snapshot: Snapshot
    pods: Sequence[ObservedPod]
    """Those to judge depth by."""
    quality: QualityStatus | None
    """What the last check found; None: none was ever asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effects:
    """What is to be done: events first, then the operations, in order."""

    state: LoopState
    decision: TuningDecision
    training: TrainingStep
    writes: Writes
    operations: Guarded
    needs_read: bool
    """Whether it takes a read of the API server itself before any of it is done."""


def step(
    state: LoopState, observed: Observed, decide: Decide, *, build: Build, memo: Memo
) -> Effects | TunerFailed[LoopState]:
    """Decide, and render what is missing. At rest there is nothing to do.

    Args:
        state: what is remembered.
        observed: what was read and measured.
        decide: the tuner.
        build: of this operator.
        memo: of what is rendered.
    """
    desired, snapshot = observed.desired, observed.snapshot
    objects = snapshot.objects
    given = tuning_snapshot(
        snapshot,
        desired,
        state.tuner,
        document_written_at_s=state.document_written_at_s,
        document_before=state.document_before(objects.status),
        pods=observed.pods,
        draft=observed.intent.wanted.spec.draft.name if observed.intent.wanted else "",
    )
    decision = decided_by(decide, given, state)
    if isinstance(decision, TunerFailed):
        return decision
    wanted = observed.intent.wanted or desired.fleet
    training = training_step(wanted, snapshot, desired, decision, state.run_begun)
    writes = writes_of(
        desired, snapshot, decision, state, training=training, build=build, memo=memo
    )
    operations = guarded(writes.todo, state.guard, snapshot.now_s)
    # What is made for a new resource needs no read: it is refused where it is there already.
    # The lists of a sync that makes a thousand resources would hold up all writes.
    by_watches = objects.from_watches and not objects.untouched
    return Effects(
        state=replace(state, windows=desired.windows, run_begun=training.run_begun),
        decision=decision,
        training=training,
        writes=writes,
        operations=operations,
        needs_read=by_watches and writes.need_a_read(operations.tried),
    )


def after_writes(
    effects: Effects, outcome: Outcome, objects: Objects, now_s: float
) -> tuple[LoopState, Applied]:
    """What came of the operations, and what is remembered of that."""
    came = applied(
        effects.writes,
        effects.operations,
        outcome,
        objects=objects,
        decision=effects.decision,
        now_s=now_s,
    )
    state = replace(
        effects.state,
        guard=came.guard,
        unlisted=came.unlisted,
        checkpoint=effects.writes.checkpoint,
        run_begun=not_made_yet(effects.state.run_begun, outcome, objects.key),
    )
    if came.moved:
        state = replace(state, objects=None)
    if wrote_tuning(effects.writes.todo, objects.key.name):
        state = replace(state, tuning_written_at_s=now_s)
    if came.changed:
        state = replace(state, document=came.document, document_written_at_s=now_s)
    return state, came


def after_restart(state: LoopState) -> LoopState:
    """What is remembered once a pod was deleted to be made again."""
    return replace(state, objects=None)


def bench_event(came: Applied) -> tuple[Event, ...]:
    """Says that a bench gave its place back, where it did."""
    ended = came.writes.bench_ended
    if ended is None or not any(ended is each for each in came.outcome.written):
        return ()
    sentence = f"Job {ended.name} was deleted: {ended.why}"
    return (Event(Severity.NORMAL, EventReason.BENCH_ENDED, sentence),)


# -- what people are told


@dataclass(frozen=True, slots=True, kw_only=True)
class Conclusion:
    state: LoopState
    events: tuple[Event, ...]
    fetch: FetchFindings
    tuning: Finding
    wake_after_s: float
    """Seconds after which something is due; infinity: nothing is."""


def concluded(
    state: LoopState,
    observed: Observed,
    decision: TuningDecision,
    came: Applied,
    fetch: FetchFindings,
) -> Conclusion:
    """What is remembered of one reconcile, and what people are told at once.

    Args:
        state: what is remembered after the writes.
        observed: what it went by.
        decision: the tuner's.
        came: what came of the writes.
        fetch: how far a fetch of weights is.
    """
    desired, snapshot = observed.desired, observed.snapshot
    sd, events = desired.tuned, list[Event]()
    tuned = report(
        decision,
        sd.spec.speculation.tuning.mode,
        snapshot.now_s,
        state.tuning,
        state.measured,
        unread=state.unread,
    )
    state = replace(state, fetch=fetch.seen)
    if came.decided:
        state = replace(state, tuner=decision.state, tuning=tuned.tuning, measured=tuned.measured)
        events += tuned.events
    bad = bad_pins(snapshot, sd.engine.depths)
    events += (
        Event(Severity.WARNING, EventReason.PIN_IGNORED, each.message)
        for each in bad
        if (each.pod, each.value) not in state.warned_pins
    )
    state = replace(state, warned_pins=frozenset((each.pod, each.value) for each in bad))
    return Conclusion(
        state=state,
        events=tuple(events),
        fetch=fetch,
        tuning=tuned.finding,
        wake_after_s=min(
            decision.wake_after_s, desired.wake_after_s, fetch.wake_after_s, came.retry_after_s
        ),
    )


def found_of(
    conclusion: Conclusion, observed: Observed, came: Applied, effects: Effects
) -> Findings:
    """What the status is to say of it."""
    return findings_of(
        observed.intent,
        observed.desired,
        observed.snapshot,
        applied=came,
        tuning_finding=conclusion.tuning,
        decision=effects.decision,
        training=effects.training,
        quality=observed.quality,
        fetch=conclusion.fetch,
        state=conclusion.state,
    )


# -- where no spec can be carried out


def without_spec(state: LoopState, objects: Objects) -> tuple[Operation, ...]:
    """What is to be written where no spec can be carried out, though pods serve.

    The Service selects them by names alone, whatever the spec says.
    """
    found = (kept(state, objects), selected_again(objects))
    return tuple(each for each in found if each is not None)


def kept(state: LoopState, objects: Objects) -> Operation | None:
    """What should survive a restart, as it is to be written; None: it is there."""
    newest = newest_of(objects.resource)
    if not isinstance(newest, SpeculativeDeployment) or is_written(state.checkpoint, objects):
        return None
    data = {**state_data(state.tuner), **state.checkpoint.data()}
    write = brought_about(objects, CONFIG_MAP, tuning_config_map(newest, data))
    return write if write is not None and (write.kind, write.name) not in objects.foreign else None


def after_kept(state: LoopState, operations: Guarded, outcome: Outcome, now_s: float) -> LoopState:
    """What is remembered once that was tried."""
    guard = operations.guard.after(outcome, now_s)
    return replace(state, objects=None, tuning_written_at_s=now_s, guard=guard)
