"""A cluster in which drafts are trained, in memory and without a loop: a pass takes a millisecond.

What decides and renders is the operator's own; a person, two kinds of Jobs and time are played.
"""

import json
from dataclasses import dataclass, field, replace
from typing import Any, Final, cast

from fathom.api import names
from fathom.api.conditions import AlarmKind, Reason
from fathom.api.status import ArmState, Compared, ComparisonStatus
from fathom.api.training import TrainingPhase, TrainingStatus
from fathom.cluster.kinds import CONFIG_MAP, JOB, Kind
from fathom.cluster.manifest import Manifest, Meta
from fathom.cluster.observed import ObservedConfigMap, ObservedJob
from fathom.cluster.observed_pods import ObservedPod
from fathom.cluster.snapshot import Objects, Snapshot
from fathom.engine.depth import DepthDocument, flat
from fathom.manifests.intake_job import IntakeProgram
from fathom.reconcile.checkpoint import Checkpoint
from fathom.reconcile.desired_state import DesiredState
from fathom.reconcile.operations import Create, Delete, Operation
from fathom.reconcile.training import TrainingStep, not_made_yet, training_step
from fathom.reconcile.training_jobs import training_operations
from fathom.reconcile.write_retries import Outcome
from fathom.resource import SpeculativeDeployment
from fathom.training.record import ON_TRIAL, WEEK_S, TrainingRecord
from fathom.training.status import training_events, training_status
from fathom.training.step import next_training
from fathom.tuning.alarms.alarm import Alarm
from fathom.tuning.interface import Action, TuningDecision
from fathom.tuning.learned_state import TuningState
from manifest_samples import resource
from support.played_training import ALLOWED, TRAINING

START_S: Final = 1_800_000_000.0
PROGRAM: Final = IntakeProgram({"fathom_intake/__init__.py": "one = 1\n"}, "dddddddddd")
MINUTE_S: Final = 60.0
PASS_S: Final = 0.731
"""From one pass to the next, at least: no two begin at the same time on any clock."""


@dataclass(frozen=True)
class Made:
    """A training's Job that was made."""

    run: str
    at_s: float
    """On a clock that nobody sets."""
    gpu_minutes: int


@dataclass
class Operator:
    """What one process remembers."""

    record: TrainingRecord
    run_begun: str = ""


@dataclass
class TrainingWorld:
    """One resource, its person, and who runs its Jobs."""

    steady_s: float = START_S
    set_by_s: float = 0.0
    """By how much the operator's clock is off."""
    trusted: bool = True
    """Whether a budget can hold: no clock was set forward, and no record was lost."""
    spec: dict[str, Any] = field(default_factory=lambda: {**ALLOWED, "draft.training": TRAINING})
    annotations: dict[str, str] = field(default_factory=dict)
    alarm_since_s: float | None = None
    jobs: dict[str, Manifest] = field(default_factory=dict)
    pods: dict[str, Manifest] = field(default_factory=dict)
    config_maps: dict[str, Manifest] = field(default_factory=dict)
    tuning: dict[str, str] = field(default_factory=dict)
    verdict: ComparisonStatus | None = None
    paused: str = ""
    made: list[Made] = field(default_factory=list)
    approved: set[str] = field(default_factory=set)
    """Runs that were the current one while a person approved them."""
    void: set[str] = field(default_factory=set)
    """Runs in place of which another was written down: nobody is asked for those again."""
    offered: dict[str, dict[str, Any] | None] = field(default_factory=dict)
    """What each run that was shown would be made from."""
    told: list[str] = field(default_factory=list)
    status: TrainingStatus | None = None
    _seen_jobs: dict[str, Manifest] = field(default_factory=dict)
    _serial: int = 0
    _parsed: dict[str, SpeculativeDeployment] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.operator = self.started()

    @property
    def now_s(self) -> float:
        return self.steady_s + self.set_by_s

    @property
    def sd(self) -> SpeculativeDeployment:
        """Parsed once for each spec that was written: that takes longer than a pass."""
        written = json.dumps(self.spec, sort_keys=True)
        if written not in self._parsed:
            self._parsed[written] = resource(self.spec, uid="uid-of-kimi")
        return self._parsed[written]

    @property
    def training(self) -> dict[str, Any] | None:
        found: dict[str, Any] | None = self.spec.get("draft.training")
        return found

    @property
    def record(self) -> TrainingRecord:
        return self.operator.record

    def started(self) -> Operator:
        """A process that knows what was written, and no more."""
        return Operator(Checkpoint.of(self.tuning).training)

    def unended(self, component: str = "training") -> list[str]:
        return [
            name
            for name, job in self.jobs.items()
            if ObservedJob.model_validate(job).component == component and not _ended(job)
        ]

    # -- one pass

    def reconcile(
        self, *, late_watch: bool = False, dies: str = "", unanswered: bool = False
    ) -> None:
        """One pass of the operator.

        Args:
            late_watch: whether it goes by Jobs as they were at the pass before, until it writes.
            dies: "recording": before it has written its record; "recorded": after that; "made":
                after the first of its other writes, of which it hears nothing.
            unanswered: the same happens to an operator that goes on.
        """
        self.steady_s += PASS_S
        step, todo = self._decided(late=late_watch)
        if late_watch and todo:
            step, todo = self._decided(late=False)
        self._note(step)
        if dies == "recording":
            self.operator = self.started()
            return
        written = Checkpoint.of(self.tuning).training
        self.operator = Operator(step.record, step.run_begun)
        if written.run != step.record.run:
            self.void.add(written.run)
        if written != step.record:
            self.tuning = Checkpoint(training=step.record).data()
        if dies == "recorded":
            self.operator = self.started()
            return
        for each in todo[: 1 if dies or unanswered else None]:
            self._perform(each)
        outcome = Outcome(written=todo)
        if unanswered and todo:
            outcome = Outcome(broke_off=(todo[0], "no answer"))
        run = not_made_yet(step.run_begun, outcome, self._objects(late=False).key)
        self.operator = self.started() if dies else Operator(step.record, run)
        self._seen_jobs = dict(self.jobs)

    def _decided(self, *, late: bool) -> tuple[TrainingStep, tuple[Operation, ...]]:
        objects, sd = self._objects(late=late), self.sd
        desired = DesiredState(
            sd=sd,
            revision="0123456789",
            stable=None,
            checkpoint=Checkpoint(training=self.operator.record),
            events=(),
            following={},
            paused=self.paused,
        )
        snapshot = Snapshot(
            now_s=self.now_s,
            objects=objects,
            counters={},
            metrics_failures=(),
            served=objects.served,
        )
        step = training_step(sd, snapshot, desired, self._decision(), self.operator.run_begun)
        if self.verdict is not None and self.record.phase in ON_TRIAL:
            given = replace(step.given, verdict=self.verdict)
            record = next_training(self.record, given)
            events = tuple(training_events(self.record, record, given, objects.key))
            step = replace(step, record=record, given=given, events=events)
        return step, tuple(training_operations(objects, sd, step, desired, PROGRAM))

    def _note(self, step: TrainingStep) -> None:
        record, key = step.record, self._objects(late=False).key
        assert TrainingRecord.from_json(record.to_json()) == record
        self.status = training_status(record, step.given, key)
        assert (self.status is None) == (record.phase is None)
        assert self.status is None or len(self.status.message) > len("It is.")
        self.offered.setdefault(record.run, self.training)
        self.told += [each.message for each in step.events]
        if step.given.approved == record.run:
            self.approved.add(record.run)

    def _perform(self, operation: Operation) -> None:
        assert isinstance(operation, Create | Delete)
        if isinstance(operation, Delete):
            self.delete(operation.kind, operation.name)
        elif operation.kind == CONFIG_MAP:
            self.config_maps.setdefault(operation.name, self._kept(operation))
        elif operation.name not in self.jobs:
            self._make(operation)

    def _kept(self, create: Create) -> dict[str, Any]:
        self._serial += 1
        identity = {"uid": f"uid-{self._serial}", "resourceVersion": f"{self._serial}"}
        metadata = {**cast("dict[str, Any]", create.manifest["metadata"]), **identity}
        return {**create.manifest, "metadata": metadata}

    def _make(self, create: Create) -> None:
        job = self._kept(create)
        if ObservedJob.model_validate(job).component == "training":
            self._begin(create.name, job["spec"])
        self.jobs[create.name] = job
        self._pod(create.name, phase="Running")

    def _begin(self, name: str, spec: Any) -> None:
        """All that must hold where GPUs are taken."""
        run = name.removeprefix("kimi-train-")
        taken = self.unended() + [
            each for each, pod in self.pods.items() if "-train-" in each and _runs(pod)
        ]
        assert not taken, f"{name} beside {taken}"
        assert run in self.approved, f"{run} was never approved"
        assert run not in self.void, f"{run} was void, and another one proposed"
        assert run not in [each.run for each in self.made], f"{run} began twice"
        assert not self.paused, f"{run} began though paused"
        training = self.training
        assert training is not None
        assert training == self.offered[run], f"{run} is not what was approved"
        assert spec["activeDeadlineSeconds"] == 60 * training["deadlineMinutes"]
        minutes = training["gpus"] * training["deadlineMinutes"]
        self.made.append(Made(run, self.steady_s, minutes))
        lately = [each for each in self.made if self.steady_s - each.at_s < WEEK_S]
        begun = sum(each.gpu_minutes for each in lately)
        if self.trusted:
            assert begun <= 60 * training["gpuHoursPerWeek"], f"{begun} minutes within a week"

    # -- who else acts

    def delete(self, kind: Kind, name: str) -> None:
        """Its pods end later."""
        (self.jobs if kind == JOB else self.config_maps).pop(name, None)

    def end(self, name: str, *, failed: str = "", message: str = "") -> None:
        """A Job ends, after its pod."""
        job = cast("dict[str, Any]", self.jobs[name])
        self._pod(name, phase="Failed" if failed else "Succeeded", message=message)
        ended = {"type": "Failed", "reason": failed} if failed else {"type": "Complete"}
        self.jobs[name] = {**job, "status": {"conditions": [{**ended, "status": "True"}]}}

    def end_pods(self) -> None:
        """What was deleted is gone."""
        self.pods = {
            name: pod for name, pod in self.pods.items() if name.removesuffix("-x") in self.jobs
        }

    def _pod(self, name: str, *, phase: str, message: str = "") -> None:
        job = cast("dict[str, Any]", self.jobs[name])
        template = job["spec"]["template"]
        state = {} if phase == "Running" else {"terminated": {"exitCode": 0, "message": message}}
        container = template["spec"]["containers"][0]["name"]
        self.pods[f"{name}-x"] = {
            "metadata": {
                "name": f"{name}-x",
                "namespace": "llm",
                "labels": template["metadata"]["labels"],
                "ownerReferences": [{"kind": "Job", "uid": job["metadata"]["uid"]}],
            },
            "spec": {},
            "status": {
                "phase": phase,
                "containerStatuses": [{"name": container, "state": state}],
            },
        }

    def lose_its_record(self) -> None:
        """The ConfigMap is deleted, and its operator ends."""
        self.tuning, self.trusted = {}, False
        self.operator = self.started()

    def judge(self, state: ArmState, result: Compared | None) -> None:
        """What is found of the replica with the new draft from now on."""
        self.verdict = ComparisonStatus(state=state, result=result, message="it is so.")

    # -- what is read

    def _objects(self, *, late: bool) -> Objects:
        metadata = {"name": "kimi", "namespace": "llm", "uid": "uid-of-kimi"}
        jobs = self._seen_jobs if late else self.jobs
        live = {(JOB, name): job for name, job in jobs.items()}
        maps = {(CONFIG_MAP, name): each for name, each in self.config_maps.items()}
        return Objects(
            read_at_s=self.now_s,
            resource={"metadata": metadata, "spec": {}},
            metadata=Meta(**metadata, annotations=dict(self.annotations)),
            status=None,
            pods=tuple(ObservedPod.model_validate(each) for each in self.pods.values()),
            depth=None,
            tuning=self.tuning,
            live={**live, **maps},
            workloads=(),
            config_maps=tuple(
                ObservedConfigMap.model_validate(each) for each in self.config_maps.values()
            ),
            jobs=tuple(ObservedJob.model_validate(each) for each in jobs.values()),
        )

    def _decision(self) -> TuningDecision:
        alarms = ()
        if self.alarm_since_s is not None:
            alarm = Alarm(
                kind=AlarmKind.DRAFT_MISMATCH,
                reason=Reason.ACCEPTANCE_BELOW_REFERENCE,
                message="acceptance fell.",
                recommendation="",
                since_s=self.alarm_since_s,
            )
            alarms = (alarm,)
        return TuningDecision(
            action=Action.HOLD,
            reason=Reason.NO_TRAFFIC,
            message="",
            document=DepthDocument(generation=1, schedule=flat(3, 8)),
            state=TuningState(),
            wake_after_s=30.0,
            measured=None,
            alarms=alarms,
        )

    # -- what a person does

    def approve(self, run: str) -> None:
        """By an annotation, which stays."""
        self.annotations[names.ANNOTATION_APPROVE_TRAINING] = run
        if self.status is not None and self.status.run == run:
            self.approved.add(run)

    def ask(self) -> None:
        """For a proposal."""
        self._serial += 1
        self.annotations[names.ANNOTATION_PROPOSE_TRAINING] = f"{self._serial}"

    def dismiss(self, run: str) -> None:
        self.annotations[names.ANNOTATION_DISMISS_TRAINING] = run

    @property
    def phase(self) -> TrainingPhase | None:
        return self.record.phase


def _ended(job: Manifest) -> bool:
    observed = ObservedJob.model_validate(job)
    return observed.complete or observed.failed is not None


def _runs(pod: Manifest) -> bool:
    return not ObservedPod.model_validate(pod).finished
