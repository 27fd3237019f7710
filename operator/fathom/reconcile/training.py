"""The training of a draft within one reconcile: what it goes by, and what it needs. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from pydantic import JsonValue

from fathom.api import names
from fathom.api.choices import AdaptiveVerification, Compares, Drafting, Proposals
from fathom.api.conditions import Reason
from fathom.api.status import ComparisonStatus
from fathom.api.training import TrainingPhase
from fathom.cluster.events import Event, EventReason, Severity
from fathom.cluster.job_pods import newest_pod, why_not_begun
from fathom.cluster.kinds import CONFIG_MAP, JOB, ObjectKey
from fathom.cluster.manifest import Manifest
from fathom.cluster.observed import ObservedJob
from fathom.cluster.snapshot import Objects
from fathom.manifests.intake_job import COMPONENT as INTAKE
from fathom.manifests.intake_job import IntakeProgram, intake_config_map, intake_job
from fathom.manifests.training_job import COMPONENT as TRAINING
from fathom.manifests.training_job import CONTAINER, training_job
from fathom.model_facts import ModelFacts
from fathom.model_refs import ModelRef, draft_ref, target_ref
from fathom.reconcile.checkpoint import Checkpoint
from fathom.reconcile.desired_state import DesiredState
from fathom.reconcile.operations import Create, Operation, deleted
from fathom.reconcile.variant import Arm, arm_status
from fathom.resource import SpeculativeDeployment
from fathom.training.evidence import Evidence, EvidenceModel
from fathom.training.intake import IntakeStage, facts_of, intake_of
from fathom.training.record import ON_TRIAL, TAKEN_IN, Acceptance, TrainingRecord
from fathom.training.status import training_status
from fathom.training.step import Cause, JobStanding, TrainingInput, next_training
from fathom.tuning.alarms.alarm import Alarm
from fathom.tuning.estimate.reference import Reference, survival
from fathom.tuning.interface import TuningDecision
from fathom.validation.model_input import preflight_of
from fathom.validation.trained_draft import intake_target
from fathom_fetch.metrics import DRAFT, MODEL

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
    events: tuple[Event, ...] = ()


def training_step(
    wanted: SpeculativeDeployment,
    objects: Objects,
    desired: DesiredState,
    decision: TuningDecision,
    now_s: float,
) -> TrainingStep:
    """Take the training one step on.

    Args:
        wanted: the spec that is carried out.
        objects: what the cluster holds.
        desired: what this pass brings about.
        decision: the tuner's, with its alarms.
        now_s: Unix seconds.
    """
    before = desired.checkpoint.training
    given = _input(wanted, objects, desired, decision, now_s)
    record = next_training(before, given)
    events = tuple(_events(before, record, given, objects.key))
    return TrainingStep(record=record, given=given, events=events)


def _input(
    wanted: SpeculativeDeployment,
    objects: Objects,
    desired: DesiredState,
    decision: TuningDecision,
    now_s: float,
) -> TrainingInput:
    spec, record = wanted.spec, desired.checkpoint.training
    training = spec.draft.training if spec.drafts and spec.cache.exists else None
    jobs = {job.name: job for job in objects.jobs}
    name, annotations = objects.key.name, objects.metadata.annotations
    job = jobs.get(names.training_job(name, record.begun)) if record.begun else None
    intake = jobs.get(names.intake_job(name, record.begun)) if record.begun else None
    own = training is not None and training.proposals is Proposals.ON_ALARM
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
        held=_held(desired),
        job=_standing(job, objects),
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
    return f"nothing begins before {desired.hold.until}" if desired.hold is not None else ""


def _standing(job: ObservedJob | None, objects: Objects) -> JobStanding:
    if job is None:
        return JobStanding()
    pod = newest_pod(job, objects.pods, CONTAINER)
    return JobStanding(
        is_there=True,
        is_complete=job.complete,
        failed=job.failed or "",
        waits=objects.refused_pods.get(job.name, "") or why_not_begun(pod),
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


_TELLS: Final[Mapping[TrainingPhase, EventReason]] = {
    TrainingPhase.PROPOSED: EventReason.TRAINING_PROPOSED,
    TrainingPhase.TRAINING: EventReason.TRAINING_STARTED,
    TrainingPhase.INTAKE: EventReason.TRAINING_ENDED,
    TrainingPhase.REFUSED: EventReason.DRAFT_REFUSED,
    TrainingPhase.TRIAL: EventReason.DRAFT_TAKEN_IN,
    TrainingPhase.FASTER: EventReason.DRAFT_FASTER,
    TrainingPhase.ADOPTED: EventReason.DRAFT_ADOPTED,
    TrainingPhase.DISMISSED: EventReason.TRAINING_DISMISSED,
    TrainingPhase.FAILED: EventReason.TRAINING_FAILED,
}
"""What is told once, when a training comes to a phase. That it waits, its person has asked for."""


def _events(
    before: TrainingRecord, after: TrainingRecord, given: TrainingInput, key: ObjectKey
) -> Iterator[Event]:
    reason = _TELLS.get(after.phase) if after.phase is not None else None
    told = training_status(after, given, key)
    if reason is None or told is None or (before.phase, before.begun) == (after.phase, after.begun):
        return
    bad = after.phase in {TrainingPhase.FAILED, TrainingPhase.REFUSED}
    yield Event(Severity.WARNING if bad else Severity.NORMAL, reason, told.message)


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
        and "trial" not in draft
    )
    if record.phase not in ON_TRIAL or result is None or not alone:
        return objects
    if served != record.draft or "training" not in draft:
        return objects
    trial: dict[str, JsonValue] = {"id": result.id}
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


def training_operations(
    objects: Objects,
    sd: SpeculativeDeployment,
    step: TrainingStep,
    desired: DesiredState,
    program: IntakeProgram,
) -> Iterator[Operation]:
    """The writes that are missing; at rest there are none.

    Args:
        objects: what the cluster holds.
        sd: the spec that is carried out.
        step: what this pass makes of the training.
        desired: what this pass brings about.
        program: that takes in what was trained.
    """
    record, given, training = step.record, step.given, step.given.spec
    if training is not None and record.begun and not given.held:
        if _is_to_be_made(record, given, objects):
            evidence = _evidence(record, sd, desired)
            manifest = training_job(sd, record.begun, training, evidence)
            yield Create(JOB, manifest, f"a person approved run {record.begun}")
        if record.phase in TAKEN_IN and given.intake.stage is IntakeStage.MISSING:
            known = intake_target(preflight_of(sd.engine, desired.checkpoint.models))
            job = intake_job(sd, record.begun, training, target=known, program=program)
            yield from _with_code(job, record.begun, objects, sd, program)
    yield from _unwanted(objects, record, given)


def _is_to_be_made(record: TrainingRecord, given: TrainingInput, objects: Objects) -> bool:
    """Whether its Job is, and this is written down where the next operator finds it."""
    written = Checkpoint.of(objects.tuning).training
    is_recorded = (written.phase, written.begun) == (TrainingPhase.TRAINING, record.begun)
    begins = record.phase is TrainingPhase.TRAINING and not record.is_job_seen
    return begins and is_recorded and not given.job.is_there


def _evidence(record: TrainingRecord, sd: SpeculativeDeployment, desired: DesiredState) -> Evidence:
    spec, fetched = sd.spec, desired.weights.fetched
    target, draft = (fetched.commit(role) if fetched else "" for role in (MODEL, DRAFT))
    return Evidence(
        run=record.begun,
        target=EvidenceModel(id=spec.model.id, commit=target or spec.model.revision),
        draft=EvidenceModel(id=spec.draft.id, commit=draft or spec.draft.revision),
        method=spec.draft.method.value,
        vllm_version=str(sd.engine.version or ""),
        tensor_parallel_size=spec.engine.tensor_parallel_size,
        reason=record.reason,
        survival_reference=record.acceptance.reference,
        survival_now=record.acceptance.now,
        depths=sd.engine.depths,
    )


def _with_code(
    job: Manifest, run: str, objects: Objects, sd: SpeculativeDeployment, program: IntakeProgram
) -> Iterator[Operation]:
    if (CONFIG_MAP, names.intake_config_map(sd.metadata.name, program.content)) not in objects.live:
        yield Create(CONFIG_MAP, intake_config_map(sd, program), "it does not exist")
    yield Create(JOB, job, f"run {run} has left a draft")


def _unwanted(
    objects: Objects, record: TrainingRecord, given: TrainingInput
) -> Iterator[Operation]:
    """Jobs of other runs, those of one that was dismissed and still runs, and code nobody mounts.

    Those that have ended stay until the next run begins: their logs are read when it failed.
    """
    name = objects.key.name
    trains, takes = names.training_job(name, record.begun), names.intake_job(name, record.begun)
    over = record.phase is TrainingPhase.DISMISSED
    mounted: frozenset[str] = frozenset()
    is_forgotten = given.intake.stage is IntakeStage.FORGOTTEN and record.result is None
    for job in objects.jobs:
        ended = job.complete or job.failed is not None
        if job.component not in {TRAINING, INTAKE}:
            continue
        if not record.begun or job.name not in {trains, takes}:
            yield deleted(objects, JOB, job.name, "another run has begun since, or none is known")
        elif over and not ended:
            yield deleted(objects, JOB, job.name, f"its run is over: {record.ending}")
        elif job.name == takes and is_forgotten:
            yield deleted(objects, JOB, job.name, "what it has found is not known any more")
        else:
            mounted |= job.spec.template.spec.config_maps
    if record.phase in TAKEN_IN and given.intake.stage is IntakeStage.MISSING:
        # The Job that is made now mounts what is in no list yet.
        return
    for each in objects.config_maps:
        if each.component == INTAKE and each.name not in mounted:
            yield deleted(objects, CONFIG_MAP, each.name, "no Job mounts it")
