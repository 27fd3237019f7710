"""The training of a draft within one reconcile: what it goes by, and what it needs. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from pydantic import JsonValue

from fathom.api import names
from fathom.api.choices import AdaptiveVerification, Compares, Drafting, Proposals
from fathom.api.conditions import Reason
from fathom.api.status import ComparisonStatus
from fathom.api.training import TrainingPhase
from fathom.cluster.events import Event
from fathom.cluster.job_pods import newest_pod, under_way, why_not_begun
from fathom.cluster.kinds import JOB, ObjectKey
from fathom.cluster.manifest import Manifest
from fathom.cluster.observed import ObservedJob
from fathom.cluster.snapshot import Objects, Snapshot
from fathom.manifests.training_job import COMPONENT as TRAINING
from fathom.manifests.training_job import CONTAINER
from fathom.model_facts import ModelFacts
from fathom.model_refs import ModelRef, draft_ref, target_ref
from fathom.reconcile.desired_state import DesiredState
from fathom.reconcile.operations import Create
from fathom.reconcile.specs import RUN_OF_TRIAL
from fathom.reconcile.variant import Arm, arm_status
from fathom.reconcile.write_retries import Outcome
from fathom.resource import SpeculativeDeployment
from fathom.rollout.replicas import why_no_arm
from fathom.rollout.rollout import Stage
from fathom.training.intake import facts_of, intake_of
from fathom.training.record import ON_TRIAL, Acceptance, TrainingRecord
from fathom.training.status import training_events
from fathom.training.step import Cause, JobStanding, TrainingInput, next_training
from fathom.tuning.alarms.alarm import Alarm
from fathom.tuning.estimate.reference import Reference, survival
from fathom.tuning.interface import TuningDecision

_HOUR_S: Final = 3600.0
_SPEAKS_AFTER_S: Final[Mapping[Reason, float]] = {
    # By then it begins to count as normal: what is over sooner was traffic.
    Reason.ACCEPTANCE_CLIFF: _HOUR_S,
    Reason.ACCEPTANCE_BELOW_REFERENCE: 0.0,
    Reason.SPECULATION_SLOWER: _HOUR_S,
}
"""Alarms that speak for another draft, and for how long each must stand. The others have a cure
that costs less: a restart, the right files, the right method."""
_FIELDS: Final[Mapping[Compares, str]] = {
    Compares.ADAPTIVE_VERIFICATION: "speculation.adaptiveVerification",
    Compares.DRAFTING: "speculation.drafting",
    Compares.DRAFT: "draft.trial",
}
_LONGEST_RUN: Final = 64
"""Characters of an annotation that are read."""
_DIGITS: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingStep:
    """What one pass makes of it."""

    record: TrainingRecord
    given: TrainingInput
    run_begun: str = ""
    """The run that this operator began and whose Job it has not made; empty: none."""
    events: tuple[Event, ...] = ()


def training_step(
    wanted: SpeculativeDeployment,
    snapshot: Snapshot,
    desired: DesiredState,
    decision: TuningDecision,
    run_begun: str,
) -> TrainingStep:
    """Take the training one step on.

    Args:
        wanted: the spec that is carried out.
        snapshot: this pass's view.
        desired: what this pass brings about.
        decision: the tuner's, with its alarms.
        run_begun: that this operator began and whose Job it has not made; empty: none.
    """
    before, key = desired.checkpoint.training, snapshot.objects.key
    given = _input(wanted, snapshot, desired, decision, run_begun)
    record = next_training(before, given)
    run = run_begun
    if record.begun != before.begun:
        # What was read is the Job of the run before.
        run, given = record.begun, replace(given, job=JobStanding(is_to_be_made=True))
    events = tuple(training_events(before, record, given, key))
    return TrainingStep(record=record, given=given, run_begun=run, events=events)


def not_made_yet(run: str, outcome: Outcome, key: ObjectKey) -> str:
    """A run that this operator began, until its Job may have been made.

    Only what the API server refused is not there. Without an answer it may be: made once more, it
    would train twice if it had ended and was deleted meanwhile.
    """
    job = names.training_job(key.name, run)
    sent = (*outcome.written, *((outcome.broke_off[0],) if outcome.broke_off else ()))
    made = any(isinstance(each, Create) and (each.kind, each.name) == (JOB, job) for each in sent)
    return "" if made or outcome.raised is not None else run


def _input(
    wanted: SpeculativeDeployment,
    snapshot: Snapshot,
    desired: DesiredState,
    decision: TuningDecision,
    run_begun: str,
) -> TrainingInput:
    objects, now_s = snapshot.objects, snapshot.now_s
    spec, record = wanted.spec, desired.checkpoint.training
    training = spec.draft.training if spec.drafts and spec.cache.exists else None
    jobs = {job.name: job for job in objects.jobs}
    name, annotations = objects.key.name, objects.metadata.annotations
    job = jobs.get(names.training_job(name, record.begun)) if record.begun else None
    intake = jobs.get(names.intake_job(name, record.begun)) if record.begun else None
    stage = None if desired.rollout is None or desired.rollout.arm else desired.rollout.stage
    own = training is not None and training.proposals is Proposals.ON_ALARM
    # What an alarm is about serves. While another pair is on trial, the spec names that.
    own = own and stage not in {Stage.SETTLING, Stage.CANARY, Stage.ROLLED_BACK}
    return TrainingInput(
        now_s=now_s,
        spec=training,
        target=target_ref(spec),
        draft=draft_ref(spec),
        cause=_cause(decision.alarms, now_s) if own else None,
        acceptance=_acceptance(decision.state.reference),
        approved=_said(annotations, names.ANNOTATION_APPROVE_TRAINING),
        dismissed=_said(annotations, names.ANNOTATION_DISMISS_TRAINING),
        asked=_said(annotations, names.ANNOTATION_PROPOSE_TRAINING),
        settles=stage is Stage.SETTLING,
        held=_held(desired) or _trains_yet(record, objects),
        no_trial="" if training is None else why_no_arm(spec),
        job=_standing(job, objects, is_to_be_made=record.begun == run_begun),
        intake=intake_of(intake, objects.pods, objects.refused_pods),
        goes_first=_goes_first(record, desired),
        verdict=_verdict(record, desired),
    )


def _said(annotations: Mapping[str, str], name: str) -> str:
    return annotations.get(name, "").strip()[:_LONGEST_RUN]


def _cause(alarms: Iterable[Alarm], now_s: float) -> Cause | None:
    for each in alarms:
        lasts_s = _SPEAKS_AFTER_S.get(each.reason)
        if lasts_s is not None and now_s - each.since_s >= lasts_s:
            return Cause(reason=each.reason, why=each.message)
    return None


def _acceptance(reference: Reference | None) -> Acceptance:
    if reference is None:
        return Acceptance()
    return Acceptance(
        reference=_rounded(survival(reference.first)),
        now=_rounded(survival(reference.day) or survival(reference.last)),
    )


def _rounded(shares: Iterable[float]) -> tuple[float, ...]:
    return tuple(round(each, _DIGITS) for each in shares)


def _held(desired: DesiredState) -> str:
    if desired.paused:
        return desired.paused
    if desired.sd.spec.rollout.paused:
        return "rollout.paused holds everything but scaling"
    rollout = desired.rollout
    if rollout is not None and rollout.stage is Stage.ROLLED_BACK and not rollout.arm:
        # What was approved is by the spec, and another one serves.
        return f"revision {rollout.revision} was rolled back: see Degraded"
    if rollout is not None and rollout.stage is Stage.SETTLING and not rollout.arm:
        return "the spec has just been edited, and may be edited again"
    return f"nothing begins before {desired.hold.until}" if desired.hold is not None else ""


def _trains_yet(record: TrainingRecord, objects: Objects) -> str:
    """What of another run takes GPUs still, as a sentence; empty: nothing does."""
    trains = record.phase is TrainingPhase.TRAINING
    own = names.training_job(objects.key.name, record.begun) if trains else ""
    found = under_way(objects.jobs, objects.pods, TRAINING, objects.read_at_s, but_for=own)
    return f"{found} of an earlier run has not ended" if found else ""


def _standing(job: ObservedJob | None, objects: Objects, *, is_to_be_made: bool) -> JobStanding:
    if job is None:
        return JobStanding(is_to_be_made=is_to_be_made)
    pod = newest_pod(job, objects.pods, CONTAINER)
    return JobStanding(
        is_there=True,
        is_complete=job.complete,
        failed=job.reason,
        waits=objects.refused_pods.get(job.name, "") or why_not_begun(pod),
        started_at_s=job.started_at_s,
        deadline_s=job.deadline_s,
    )


def is_tried(record: TrainingRecord, arm: Arm | None) -> bool:
    """Whether the one replica that is compared has the trained draft."""
    if arm is None:
        return False
    draft = arm.sd.spec.draft
    return record.tries(ModelRef(draft.id, draft.revision))


def _goes_first(record: TrainingRecord, desired: DesiredState) -> str:
    if desired.arm is None or is_tried(record, desired.arm):
        return ""
    return _FIELDS[desired.arm.compares]


def _verdict(record: TrainingRecord, desired: DesiredState) -> ComparisonStatus | None:
    if not is_tried(record, desired.arm):
        return None
    found = arm_status(
        desired.arm,
        desired.rollout,
        not_fetched="",
        paused=bool(desired.paused),
        trained=True,
    )
    return found.get(Compares.DRAFT)


def with_trained_draft(objects: Objects, record: TrainingRecord) -> Objects:
    """The resource as if its user had written the trained draft as `draft.trial`.

    A person approved that with the training. What else is compared goes first, and where the spec
    has changed since, nothing is tried.
    """
    spec, result = _object(objects.resource.get("spec")), record.result
    draft, speculation = _object(spec.get("draft")), _object(spec.get("speculation"))
    served = ModelRef(str(draft.get("id", "")), str(draft.get("revision", "")))
    alone = (
        speculation.get("drafting", Drafting.ENABLED) == Drafting.ENABLED
        and speculation.get("adaptiveVerification") != AdaptiveVerification.CANARY
        and draft.get("trial") is None
    )
    if record.phase not in ON_TRIAL or result is None or not alone:
        return objects
    if served != record.draft or draft.get("training") is None:
        return objects
    # Kept with the spec, in which no user wrote it: see `without_ended_trial`.
    trial: dict[str, JsonValue] = {"id": result.id, RUN_OF_TRIAL: record.begun}
    if result.revision:
        trial["revision"] = result.revision
    tried: Manifest = {
        **objects.resource,
        "spec": {**spec, "draft": {**draft, "trial": trial}},
    }
    return replace(objects, resource=tried)


def _object(value: JsonValue) -> Mapping[str, JsonValue]:
    return value if isinstance(value, dict) else {}


def trained_models(record: TrainingRecord) -> Mapping[ModelRef, ModelFacts]:
    """What the intake has found out of the trained draft, which no hub knows."""
    facts = facts_of(record.result) if record.result is not None else None
    if record.result is None or facts is None:
        return {}
    return {record.result.ref: facts}
