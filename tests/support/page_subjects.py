"""Resources to be shown: one that has lived through three kinds of traffic, and strange ones."""

from dataclasses import replace
from functools import cache

from fathom.api.choices import TuningMode
from fathom.api.conditions import AlarmKind, ConditionStatus, ConditionType
from fathom.api.status import (
    ArmState,
    ComparisonStatus,
    Condition,
    DepthStatus,
    EngineStatus,
    MeasuredStatus,
    RolloutStatus,
    SpeculativeDeploymentStatus,
    TuningStatus,
)
from fathom.api.training import TrainingPhase, TrainingStatus
from fathom.cluster.kinds import ObjectKey
from fathom.engine.depth import DepthDocument, merged, summary
from fathom.page.history import History
from fathom.page.subject import Subject
from fathom.reconcile.tuning_report import gained_status, report
from fathom.times import rfc3339
from fathom.tuning.interface import TuningDecision
from manifest_samples import resource
from unit.tuning.plant import EASY, HARD, MIDDLE, SETTINGS, START_S, Fleet

KEY = ObjectKey("llm", "kimi")
HOSTILE = """<script>alert("1")</script>&'"><img src=x onerror=alert(2)>"""
EAGER = {
    "engine.args": ["--max-num-seqs", "16", "--enforce-eager"],
    "speculation.tokens": 3,
    "speculation.maxTokens": 7,
}


def condition(
    kind: ConditionType | AlarmKind, reason: str, message: str = "", *, holds: bool = True
) -> Condition:
    return Condition(
        type=kind,
        status=ConditionStatus.TRUE if holds else ConditionStatus.FALSE,
        reason=reason,
        message=message,
        last_transition_time=rfc3339(START_S),
    )


def depth_status(document: DepthDocument, at_s: float) -> DepthStatus:
    return DepthStatus(
        summary=summary(document.schedule),
        schedule=tuple((each.first, each.last, each.depth) for each in merged(document.schedule)),
        generation=document.generation,
        since=rfc3339(at_s),
    )


def reported(
    decision: TuningDecision, at_s: float, before: SpeculativeDeploymentStatus
) -> SpeculativeDeploymentStatus:
    """The status after one more decision."""
    told = report(decision, TuningMode.AUTO, at_s, before.tuning, before.measured)
    return before.model_copy(
        update={
            "tuning": told.tuning,
            "measured": told.measured,
            "gained": gained_status(decision.state.gained, on_gpus=True),
            "depth": depth_status(decision.document, at_s),
        }
    )


BEGUN = SpeculativeDeploymentStatus(
    replicas=2,
    ready_replicas=2,
    ready="2/2",
    reason="AllReplicasReady",
    conditions=(
        condition(ConditionType.READY, "AllReplicasReady"),
        condition(ConditionType.DEGRADED, "AsExpected", holds=False),
    ),
    engine=EngineStatus(version="0.32.0", actuation="Live"),
    rollout=RolloutStatus(
        revision="0a1b2c3d",
        stable="9f8e7d6c",
        stage="Complete",
        since=rfc3339(START_S),
        reason="CanaryGood",
        message="the canary was 1.2 % faster (95 %: -0.8 to +3.2) at equal batch and depth.",
        why="spec.engine.image",
    ),
)


@cache
def lived() -> tuple[Subject, float]:
    """A resource after three quarters of an hour, and the moment (Unix seconds)."""
    fleet = Fleet(settings=SETTINGS, acceptance=EASY, concurrency=4, tick_s=1.0)
    for pod in fleet.pods:
        pod.long_requests = (0.2, 0.5)
    fleet.run(900)
    fleet.acceptance, fleet.concurrency = HARD, 13
    fleet.run(900)
    fleet.acceptance, fleet.concurrency = MIDDLE, 7
    fleet.run(900)
    history, status = History(START_S), BEGUN
    for at_s, decision in fleet.decisions:
        status = reported(decision, at_s, status)
        history.saw(status, at_s)
    sd = resource(EAGER)
    return Subject(
        key=KEY,
        resource=sd,
        status=status,
        document=fleet.document,
        state=fleet.state,
        history=history,
    ), fleet.now_s


def troubled(subject: Subject) -> Subject:
    """The same with an alarm and a trouble."""
    conditions = (
        condition(ConditionType.READY, "ReplicasNotReady", "1 of 2 is ready.", holds=False),
        condition(ConditionType.DEGRADED, "ImageUnavailable", "pod kimi-1: no such image."),
        condition(AlarmKind.DRAFT_MISMATCH, "AcceptanceCliff", "acceptance fell to 1.1."),
    )
    status = subject.status.model_copy(update={"conditions": conditions, "ready": "1/2"})
    return replace(subject, status=status)


def hostile() -> Subject:
    """One whose every text would do harm if it were taken for markup."""
    subject, _ = lived()
    message = HOSTILE
    status = subject.status.model_copy(
        update={
            "ready": HOSTILE,
            "reason": HOSTILE,
            "conditions": (condition(AlarmKind.DRAFT_MISMATCH, HOSTILE, message),),
            "rollout": RolloutStatus(
                revision=HOSTILE, stage=HOSTILE, since=rfc3339(START_S), message=message
            ),
            "training": TrainingStatus(
                phase=TrainingPhase.FASTER,
                run=HOSTILE,
                since=HOSTILE,
                message=f"{message} To give all replicas {message}, or: `{message}`.",
                job=HOSTILE,
                gpu_hours_this_week=HOSTILE,
            ),
            "draft_trial": ComparisonStatus(
                state=ArmState.FAILED, since=HOSTILE, reason=HOSTILE, message="`" + message
            ),
            "measured": MeasuredStatus(at=HOSTILE, acceptance_length=HOSTILE),
            "tuning": TuningStatus(
                summary=HOSTILE,
                history=tuple(
                    each.model_copy(update={"action": HOSTILE, "message": message})
                    for each in subject.status.tuning.history
                ),
            ),
        }
    )
    key = ObjectKey(HOSTILE, HOSTILE)
    return Subject(
        key=key,
        resource=subject.resource,
        status=status,
        document=None,
        state=subject.state,
        history=None,
    )
