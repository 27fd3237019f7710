"""The Jobs that a training needs within one reconcile: what is made, and what goes. Pure."""

from collections.abc import Iterator

from fathom.api import names
from fathom.api.training import TrainingPhase
from fathom.cluster.kinds import CONFIG_MAP, JOB
from fathom.cluster.manifest import Manifest
from fathom.cluster.snapshot import Objects
from fathom.manifests.intake_job import COMPONENT as INTAKE
from fathom.manifests.intake_job import IntakeProgram, intake_config_map, intake_job
from fathom.manifests.training_job import COMPONENT as TRAINING
from fathom.manifests.training_job import training_job
from fathom.reconcile.checkpoint import Checkpoint
from fathom.reconcile.desired_state import DesiredState
from fathom.reconcile.fetching import pinned_to_fetched
from fathom.reconcile.operations import Create, Operation, deleted
from fathom.reconcile.training import TrainingStep
from fathom.resource import SpeculativeDeployment
from fathom.training.evidence import Evidence, EvidenceModel
from fathom.training.intake import IntakeStage
from fathom.training.record import TAKEN_IN, TrainingRecord
from fathom.training.step import TrainingInput
from fathom.validation.model_input import preflight_of
from fathom.validation.trained_draft import intake_target


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
            evidence = _evidence(record, _as_served(sd, objects, desired))
            manifest = training_job(sd, record.begun, training, evidence)
            yield Create(JOB, manifest, f"a person approved run {record.begun}")
        if record.phase in TAKEN_IN and given.intake.stage is IntakeStage.MISSING:
            known = intake_target(preflight_of(sd.engine, desired.checkpoint.models))
            job = intake_job(sd, record.begun, training, target=known, program=program)
            yield from _with_code(job, record.begun, objects, sd, program)
    yield from _unwanted(objects, record, given)


def _is_to_be_made(record: TrainingRecord, given: TrainingInput, objects: Objects) -> bool:
    """Whether its Job is, and this is written down where the next operator finds it."""
    trains = record.phase is TrainingPhase.TRAINING and not record.is_job_seen
    if not (trains and given.job.is_to_be_made):
        return False
    written = Checkpoint.of(objects.tuning).training
    return (written.phase, written.begun) == (record.phase, record.begun)


def _as_served(
    sd: SpeculativeDeployment, objects: Objects, desired: DesiredState
) -> SpeculativeDeployment:
    """At the commits that the replicas have, but for one that is only compared."""
    rollout = desired.rollout
    revision = rollout.stable if rollout is not None and rollout.arm else desired.revision
    return pinned_to_fetched(sd, revision, objects, desired.checkpoint)


def _evidence(record: TrainingRecord, sd: SpeculativeDeployment) -> Evidence:
    spec = sd.spec
    return Evidence(
        run=record.begun,
        target=EvidenceModel(id=spec.model.id, commit=spec.model.revision),
        draft=EvidenceModel(id=spec.draft.id, commit=spec.draft.revision),
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
    idle = record.phase is not TrainingPhase.TRAINING
    mounted: frozenset[str] = frozenset()
    is_forgotten = given.intake.stage is IntakeStage.FORGOTTEN and record.result is None
    for job in objects.jobs:
        if job.component not in {TRAINING, INTAKE}:
            continue
        if not record.begun or job.name not in {trains, takes}:
            yield deleted(objects, JOB, job.name, "another run has begun since, or none is known")
        elif not job.ended and (over or (idle and job.name == trains)):
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
