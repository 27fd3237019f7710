"""One reconcile of a SpeculationTuner, as pure steps: what is read goes in, what to do comes out.

`fathom.runtime.tuner_loop` reads, performs and remembers, and does nothing else:

1. `begun`: what was read of the cluster, and what is known of earlier reconciles;
2. `step`: what can be done with each pod, what the tuner decides, and what is to be written;
3. `after_writes`: what came of that;
4. `fathom.attach.status.status_of`: what people are told.

It writes to what it owns: the ConfigMaps of its depth document and of what it has learned. Of the
pods it may annotate those that read the document, so that their kubelets fetch it soon.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

from fathom.api import names
from fathom.api.choices import TuningMode
from fathom.api.conditions import ConditionStatus, Reason
from fathom.api.tuner import Level, SpeculationTunerStatus
from fathom.attach.evidence import PodEvidence, evidence_of, first_missing, judged, with_start
from fathom.attach.tuning_input import tuning_snapshot
from fathom.cluster.events import Event
from fathom.cluster.kinds import CONFIG_MAP
from fathom.cluster.manifest import Manifest
from fathom.cluster.snapshot import SelectedObjects
from fathom.engine.depth import DepthDocument
from fathom.manifests.config_maps import tuner_config_map
from fathom.measurement.counters import PodCounters, Unread
from fathom.reconcile.applied import Guarded, guarded, nudges
from fathom.reconcile.last_status import QUIET_S
from fathom.reconcile.loop_state import (
    Decide,
    TunedState,
    TunerFailed,
    decided_by,
    kept_state,
    state_data,
)
from fathom.reconcile.operations import Operation, Patch, brought_about
from fathom.reconcile.status_input import Finding
from fathom.reconcile.tuning_report import report
from fathom.reconcile.write_retries import Outcome
from fathom.resource import SpeculationTuner
from fathom.times import is_over
from fathom.tuning.interface import TuningDecision
from fathom_vllm.environment import DEPTH_KEY


@dataclass(frozen=True, slots=True, kw_only=True)
class TunerState(TunedState):
    """What the loop of a SpeculationTuner remembers."""

    objects: SelectedObjects | None
    lost: tuple[str, ...] = ()
    """Keys of what was learned that could not be read, until people are told."""

    @classmethod
    def recalled(cls, objects: SelectedObjects, now_s: float) -> Self:
        """As an earlier operator left it."""
        status, kept = objects.status or SpeculationTunerStatus(), kept_state(objects.tuning)
        return replace(cls._recalled(objects, status, kept, now_s), lost=kept.lost)

    def acting_upon(self, generation: int, annotations: Mapping[str, str]) -> Self:
        """Acts upon this generation. What could not be read was reported by then."""
        return replace(TunedState.acting_upon(self, generation, annotations), lost=())

    def with_read(self, objects: SelectedObjects, now_s: float) -> Self:
        """Knows what was read, and since when the document in it is there."""
        return replace(self._with_document(objects, now_s), objects=objects)


def begun(state: TunerState | None, objects: SelectedObjects, now_s: float) -> TunerState:
    """What is remembered when a reconcile begins."""
    if state is None or state.uid != objects.metadata.uid:
        state = TunerState.recalled(objects, now_s)
    return state.with_read(objects, now_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What one reconcile goes by."""

    now_s: float
    tuner: SpeculationTuner
    objects: SelectedObjects
    pods: tuple[PodEvidence, ...]
    """All that the selector finds and that have not ended."""
    judged: tuple[PodEvidence, ...]
    """Those to judge by; empty: nothing is known of any."""
    counters: Mapping[str, PodCounters]

    @property
    def followers(self) -> tuple[PodEvidence, ...]:
        """Those that follow the depth document."""
        return tuple(each for each in self.pods if each.level is Level.LIVE)


def found_of(
    tuner: SpeculationTuner,
    objects: SelectedObjects,
    counters: Sequence[PodCounters],
    failures: Sequence[Unread],
    *,
    now_s: float,
) -> Found:
    """Put together what was read.

    Args:
        tuner: whose pods.
        objects: what the cluster holds.
        counters: what their pages show.
        failures: of those that could not be read.
        now_s: Unix seconds.
    """
    pods_by_name = {each.name: each for each in objects.leaders}
    by_pod = {each.pod: with_start(each, pods_by_name.get(each.pod)) for each in counters}
    document = names.tuner_depth_config_map(tuner.metadata.name)
    pods = evidence_of(
        objects.leaders,
        by_pod,
        failures,
        document=document,
        tokens_given=tuner.spec.tokens is not None,
    )
    return Found(
        now_s=now_s,
        tuner=tuner,
        objects=objects,
        pods=pods,
        judged=judged(pods),
        counters=by_pod,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Effects:
    """What is to be done, in order."""

    state: TunerState
    decision: TuningDecision | None
    """None: there is no pod to judge by."""
    document: DepthDocument | None
    """The depths to ask for; None: none are written."""
    operations: Guarded


def step(state: TunerState, found: Found, decide: Decide) -> Effects | TunerFailed[TunerState]:
    """Decide, and render what is missing. At rest, and in mode Advise, no document is written."""
    objects, pods = found.objects, found.judged
    if not pods:
        settled = guarded((), state.guard, found.now_s)
        return Effects(state=state, decision=None, document=objects.depth, operations=settled)
    given = tuning_snapshot(
        found.tuner,
        objects,
        pods,
        state.tuner,
        followers=found.followers,
        now_s=found.now_s,
        document_written_at_s=state.document_written_at_s,
        document_before=state.document_before(objects.status),
    )
    decision = decided_by(decide, given, state)
    if isinstance(decision, TunerFailed):
        return decision
    document = decision.document if _writes(found, pods) else objects.depth
    wanted = tuple(_operations(found, decision, document, state))
    return Effects(
        state=state,
        decision=decision,
        document=document,
        operations=guarded(wanted, state.guard, found.now_s),
    )


def _writes(found: Found, pods: Sequence[PodEvidence]) -> bool:
    """Whether a depth document may be written: one that is there is kept to the spec's wish."""
    if pods[0].level is not Level.LIVE:
        return False
    auto = found.tuner.spec.tuning.mode is TuningMode.AUTO
    return auto or found.objects.depth is not None


def _operations(
    found: Found, decision: TuningDecision, document: DepthDocument | None, state: TunerState
) -> Iterator[Operation]:
    for manifest in _wanted(found, decision, document, state):
        operation = brought_about(found.objects, CONFIG_MAP, manifest)
        if operation is not None and (CONFIG_MAP, operation.name) not in found.objects.foreign:
            yield operation


def _wanted(
    found: Found, decision: TuningDecision, document: DepthDocument | None, state: TunerState
) -> Iterator[Manifest]:
    tuner, name = found.tuner, found.tuner.metadata.name
    if document is not None and document.generation > 0:
        data = {DEPTH_KEY: document.to_json()}
        yield tuner_config_map(tuner, names.tuner_depth_config_map(name), data)
    data = state_data(decision.state)
    due = decision.moved or is_over(state.tuning_written_at_s, QUIET_S, found.now_s)
    if due and data != {key: found.objects.tuning.get(key) for key in data}:
        yield tuner_config_map(tuner, names.tuner_state_config_map(name), data)


@dataclass(frozen=True, slots=True, kw_only=True)
class Came:
    """What came of the writes."""

    document: DepthDocument | None
    """In force, as it is written."""
    refusals: tuple[str, ...]
    """Sentences; empty: everything is as it should be."""
    nudges: tuple[Patch, ...]
    """What has kubelets fetch the document sooner."""
    events: tuple[Event, ...]
    tuning: Finding
    retry_after_s: float


def after_writes(effects: Effects, outcome: Outcome, found: Found) -> tuple[TunerState, Came]:
    """What is remembered, and what follows at once."""
    state, decision, objects, now_s = effects.state, effects.decision, found.objects, found.now_s
    name = names.tuner_depth_config_map(found.tuner.metadata.name)
    guard = effects.operations.guard.after(outcome, now_s)
    state = replace(state, guard=guard, objects=None if outcome.tried else state.objects)
    left = outcome.left(effects.operations.tried)
    decided = decision is not None and not any(each.name == name for each in left)
    document = effects.document if decided else objects.depth
    written = any(each.name == name for each in outcome.written)
    if any(each.name != name for each in outcome.written):
        state = replace(state, tuning_written_at_s=now_s)
    if written:
        state = replace(state, document=document, document_written_at_s=now_s)
    nudged: tuple[Patch, ...] = ()
    if decision is None:
        missing = first_missing(found.pods)
        reason = missing.reason if missing is not None else Reason.NO_PODS
        tuning = Finding(
            ConditionStatus.FALSE, reason, "There is no pod to judge by: see Attached."
        )
        events: tuple[Event, ...] = ()
    else:
        mode = found.tuner.spec.tuning.mode
        told = report(decision, mode, now_s, state.tuning, state.measured, unread=state.unread)
        tuning, events = told.finding, told.events if decided else ()
        if decided:
            state = replace(state, tuner=decision.state, tuning=told.tuning, measured=told.measured)
            pods = [each.pod for each in found.followers]
            nudged = nudges(objects, pods, document, decision, changed=written, now_s=now_s)
    return state, Came(
        document=document,
        refusals=tuple(why for _, why in (*effects.operations.held, *outcome.failed)),
        nudges=nudged,
        events=events,
        tuning=tuning,
        retry_after_s=guard.retry_after_s(now_s),
    )
