"""What one reconcile has to report, put together for the status."""

from collections.abc import Iterator
from dataclasses import replace

from fathom.api import names
from fathom.api.conditions import AlarmKind, ConditionStatus, Reason
from fathom.api.problem import Problem
from fathom.api.spec import SpeculativeDeploymentSpec
from fathom.api.status import (
    OFFERED,
    DraftStatus,
    EngineStatus,
    QualityStatus,
    RolloutStatus,
    WeightsStatus,
)
from fathom.cluster.kinds import left_out
from fathom.cluster.snapshot import Objects, Snapshot
from fathom.engine.depth import DepthDocument
from fathom.engine.report import Difference, EngineReport, differences
from fathom.measurement.counters import PodCounters
from fathom.reconcile.applied import Applied
from fathom.reconcile.desired_state import DesiredState
from fathom.reconcile.fetching import FetchFindings
from fathom.reconcile.intent import Intent
from fathom.reconcile.loop_state import LoopState
from fathom.reconcile.renderings import Offer
from fathom.reconcile.status_input import Finding, Findings
from fathom.reconcile.training import TrainingStep, is_tried
from fathom.reconcile.tuning_input import why_not_live, why_not_live_again
from fathom.reconcile.tuning_report import gained_status
from fathom.reconcile.variant import arm_status
from fathom.rollout.progress import Progress, progress_under
from fathom.rollout.refresh import Refresh
from fathom.rollout.rollout import Rollout, Stage
from fathom.times import rfc3339
from fathom.training.status import training_status
from fathom.tuning.alarms.alarm import Alarm
from fathom.tuning.interface import TuningDecision
from fathom.validation.spec_checks import TRIAL


def differing_engines(
    snapshot: Snapshot, desired: DesiredState
) -> dict[str, tuple[Difference, ...]]:
    """By pod that serves: in what its engine differs. Only those that do.

    What was rendered stands in the workload, whichever Fathom wrote it: an admission webhook may
    have changed the pod.
    """
    asked = dict(_asked(snapshot, desired))
    found = {
        pod.name: (
            *differences(snapshot.counters[pod.name].report, asked[pod.revision]),
            *_other_schedule(snapshot.counters[pod.name], snapshot.objects.depth),
        )
        for pod in sorted(snapshot.objects.leaders, key=lambda each: each.name)
        if pod.name in snapshot.counters and pod.revision in asked and not pod.terminating
    }
    return {pod: differing for pod, differing in found.items() if differing}


def _other_schedule(counters: PodCounters, document: DepthDocument | None) -> Iterator[Difference]:
    """Where an engine obeys a document of the same generation that says something else."""
    if document is None or counters.depth_generation != document.generation:
        return
    told, asked = counters.schedule_hash, document.hash_for_pod(counters.pod)
    if not counters.follows(document):
        yield Difference(
            f"depths of generation {document.generation} with hash", f"{told:08x}", f"{asked:08x}"
        )


def _asked(snapshot: Snapshot, desired: DesiredState) -> Iterator[tuple[str, EngineReport]]:
    """What was asked of the engines, by revision that has a workload."""
    known = {desired.revision: desired.sd}
    if desired.stable is not None:
        known[desired.tuned_revision] = desired.stable
    for workload in snapshot.objects.workloads:
        asked, sd = workload.leader.asks_for, known.get(workload.revision)
        if sd is not None:
            version, ranks = sd.engine.version, sd.spec.engine.tensor_parallel_size
            asked = replace(asked, version=str(version or ""), tensor_parallel=ranks)
        yield workload.revision, asked


def findings_of(
    intent: Intent,
    desired: DesiredState,
    snapshot: Snapshot,
    *,
    applied: Applied,
    tuning_finding: Finding,
    decision: TuningDecision,
    training: TrainingStep,
    quality: QualityStatus | None,
    fetch: FetchFindings,
    state: LoopState,
) -> Findings:
    """Findings of a reconcile that carried out a spec."""
    offer = desired.offer if desired.rollout is None or desired.rollout.arm else None
    name = desired.sd.metadata.name
    tries = desired.rollout is not None and desired.rollout.arm and desired.rollout.draft
    trained = is_tried(training.record, desired.arm)
    not_fetched = fetch.trouble.message if tries and fetch.trouble else ""
    return Findings(
        now_s=snapshot.now_s,
        replicas=intent.replicas,
        problems=intent.problems,
        warnings=_warnings(intent, trained=trained),
        progress=_paused(
            desired,
            _held(desired)
            or (None if tries else fetch.progress)
            or progress_under(
                desired.rollout,
                snapshot.objects,
                planned=applied.writes.plan.progress,
                revision=desired.revision,
                replicas=intent.replicas,
            ),
        ),
        checkpoint_unread=_unread(desired),
        rolled_back=_rolled_back(desired, snapshot.objects),
        no_way_back=_no_way_back(desired.rollout),
        asks_for_room=_asks_for_room(desired.rollout),
        rollout=(
            _rollout_status(desired.rollout)
            if offer is None
            else _offer_status(offer, name, snapshot)
        ),
        offer=offer.sentence(name) if offer else "",
        comparisons=arm_status(
            desired.arm,
            desired.rollout,
            not_fetched=not_fetched,
            paused=bool(desired.paused) or desired.fleet.spec.rollout.paused,
            trained=trained,
        ),
        training=training_status(training.record, training.given, snapshot.objects.key),
        refusals=applied.refusals,
        taken=applied.writes.taken,
        weights=_weights_before(snapshot) if tries else fetch.status,
        # What serves is what was asked for, whatever becomes of a draft on trial.
        weights_trouble=None if not_fetched else fetch.trouble,
        left_out=left_out(desired.fleet.spec, snapshot.served, snapshot.objects.optional),
        without_effect=_without_effect(snapshot.objects),
        not_obeyed=decision.not_obeyed,
        differing=differing_engines(snapshot, desired),
        alarms={
            each.kind: _alarm_finding(each, applied.writes.refresh) for each in decision.alarms
        },
        draft_compatible=_draft_finding(intent),
        tuning_finding=tuning_finding,
        engine=_engine_status(desired, snapshot.objects),
        draft=DraftStatus(family=intent.draft.family if intent.draft else ""),
        document=applied.document if desired.followed else None,
        fixed_depth="" if desired.on_trial else _fixed_depth(desired.fleet.spec),
        document_written_at_s=state.document_written_at_s,
        measured=state.measured,
        tuning=state.tuning,
        gained=gained_status(state.tuner.gained, on_gpus=desired.tuned.engine.layout.on_gpus),
        quality=quality,
        counters=snapshot.counters,
    )


def findings_without_spec(
    intent: Intent, objects: Objects, state: LoopState, now_s: float
) -> Findings:
    """Findings of a reconcile that knew no spec it could carry out."""
    return Findings(
        now_s=now_s,
        replicas=intent.replicas,
        problems=intent.problems,
        warnings=intent.warnings,
        progress=None,
        rolled_back="",
        no_way_back="",
        asks_for_room="",
        rollout=_rollout_status(state.checkpoint.rollout),
        comparisons={},
        offer="",
        refusals=(),
        taken=(),
        left_out=(),
        without_effect="",
        not_obeyed=(),
        draft_compatible=_draft_finding(intent),
        tuning_finding=Finding(
            ConditionStatus.FALSE,
            Reason.HOLDING,
            "nothing is tuned until the spec is one that can be carried out: see Degraded.",
        ),
        engine=EngineStatus(),
        draft=DraftStatus(),
        document=objects.depth,
        document_written_at_s=state.document_written_at_s,
        measured=state.measured,
        tuning=state.tuning,
        gained=objects.status.gained if objects.status else None,
        quality=objects.status.quality if objects.status else None,
        training=objects.status.training if objects.status else None,
    )


def _weights_before(snapshot: Snapshot) -> WeightsStatus | None:
    """What was fetched for the pods that serve, while those of a draft on trial are fetched."""
    status = snapshot.objects.status
    return status.weights if status else None


def _fixed_depth(spec: SpeculativeDeploymentSpec) -> str:
    return str(spec.speculation.tokens) if spec.drafts else "off"


def _warnings(intent: Intent, *, trained: bool) -> tuple[Problem, ...]:
    """But for those of a field that no user wrote: `status.training` tells of a trained draft."""
    return tuple(each for each in intent.warnings if not (trained and each.field == TRIAL))


def _without_effect(objects: Objects) -> str:
    if not objects.unknown:
        return ""
    return (
        f"Without effect: {', '.join(objects.unknown)}, which the CRD has and this release of the "
        "operator does not know; `helm upgrade` brings both to one release."
    )


def _unread(desired: DesiredState) -> str:
    return desired.hold.progress.message if desired.hold and desired.hold.frozen else ""


def _paused(desired: DesiredState, progress: Progress) -> Progress:
    """With a pause before all that is under way, or is held by it."""
    if not desired.paused:
        return progress
    return Progress(Reason.PAUSED, f"{desired.paused} Meanwhile: {progress.message}")


def _held(desired: DesiredState) -> Progress | None:
    return desired.hold.progress if desired.hold else None


def _rolled_back(desired: DesiredState, objects: Objects) -> str:
    rollout = desired.rollout
    if rollout is None or rollout.arm or rollout.stage is not Stage.ROLLED_BACK:
        # All that serve are what the spec asks for where one was only compared.
        return ""
    revision, stable = rollout.revision, rollout.stable
    withdrawn = f"annotation {names.ANNOTATION_ROLLOUT} goes, or " if rollout.offered else ""
    if desired.revision != revision:
        now = f"The spec of {stable} is in force"
    elif objects.has_workload(rollout.stable):
        now = f"The spec of {stable} is not known any more, and its pods stay as they are"
    else:
        now = f"Nothing is left of {stable}, so {revision} is started everywhere,"
    return (
        f"revision {revision} was rolled back to {stable} ({rollout.reason}): {rollout.message} "
        f"{now} until {withdrawn}spec asks for another revision; to try {revision} once more, give "
        f"annotation {names.ANNOTATION_RETRY_ROLLOUT} a new value."
    )


def _no_way_back(rollout: Rollout | None) -> str:
    if rollout is None or rollout.reason is not Reason.STABLE_SPEC_UNKNOWN:
        return ""
    return f"revision {rollout.revision} waits: {rollout.message}"


def _asks_for_room(rollout: Rollout | None) -> str:
    asks = rollout is not None and rollout.reason is Reason.AWAITING_CAPACITY
    return rollout.revision if rollout is not None and asks else ""


def _rollout_status(rollout: Rollout | None) -> RolloutStatus | None:
    if rollout is None or rollout.arm:
        return None
    return RolloutStatus(
        revision=rollout.revision,
        stable=rollout.stable,
        stage=rollout.stage,
        since=rfc3339(rollout.began_at_s),
        reason=rollout.reason,
        message=rollout.message,
        why=rollout.why,
    )


def _offer_status(offer: Offer, name: str, snapshot: Snapshot) -> RolloutStatus:
    status = snapshot.objects.status
    last = status.rollout if status else None
    again = last is not None and (last.stage, last.revision) == (OFFERED, offer.revision)
    return RolloutStatus(
        revision=offer.revision,
        stable=offer.stable,
        stage=OFFERED,
        since=last.since if last and again else rfc3339(snapshot.now_s),
        reason=Reason.RENDERED_OTHERWISE,
        message=f"begins when `kubectl fathom rollout {name}` asks for it.",
        why=offer.why,
    )


def _alarm_finding(alarm: Alarm, refresh: Refresh) -> Finding:
    message = f"{alarm.message} {alarm.recommendation}"
    if alarm.kind is AlarmKind.ACCEPTANCE_DECAY:
        message += f" Now: {refresh.why}"
    return Finding(ConditionStatus.TRUE, alarm.reason, message)


def _draft_finding(intent: Intent) -> Finding:
    verdict = intent.draft
    if verdict is None:
        return Finding(
            ConditionStatus.UNKNOWN,
            Reason.NOT_CHECKED,
            "the spec has to be fixed before its draft can be checked.",
        )
    return Finding(verdict.status, verdict.reason, verdict.message)


def _engine_status(desired: DesiredState, objects: Objects) -> EngineStatus:
    fleet = desired.fleet
    # What most replicas run, while a revision is on trial.
    version = (desired.stable if desired.on_trial and desired.stable else fleet).engine.version
    refusal = why_not_live(objects, desired)
    return EngineStatus(
        version="" if version is None else str(version),
        actuation="Live" if fleet.spec.tunable and refusal is None else "None",
        reason=why_not_live_again(desired) if refusal is None else refusal[1],
    )
