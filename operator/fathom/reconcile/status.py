"""The status, from one pass's findings. Pure: the same findings give the same status."""

from collections.abc import Mapping
from typing import Final

from pydantic import JsonValue

from fathom.api import names
from fathom.api.choices import Compares
from fathom.api.conditions import AlarmKind, ConditionType, Reason
from fathom.api.status import (
    COMPLETE,
    OFFERED,
    DepthStatus,
    ReportedStatus,
    RolloutStatus,
    SpeculativeDeploymentStatus,
)
from fathom.cluster.manifest import Manifest
from fathom.cluster.snapshot import Objects, Status, TunedObjects
from fathom.engine.depth import DepthDocument, merged, summary
from fathom.measurement.counters import PodCounters
from fathom.reconcile.conditions import (
    alarms,
    condition,
    degraded_condition,
    progressing_condition,
    ready_condition,
    telling,
)
from fathom.reconcile.status_input import Finding, Findings
from fathom.rollout.rollout import Stage
from fathom.rollout.steps import BACK
from fathom.text import literal_secrets, scrubbed_value, shortened
from fathom.times import rfc3339

MOST_WARNINGS: Final = 16
LONGEST_WARNING: Final = 1024
"""Characters of one."""
_READINESS: Final = frozenset({"replicas", "ready_replicas", "ready", "reason"})
"""What moves with the pods that there are."""


def status_of(
    findings: Findings, objects: Objects, written: ReportedStatus | None = None
) -> SpeculativeDeploymentStatus:
    """The status to report; times of conditions are carried over from the one that is there.

    Args:
        findings: what one pass found out.
        objects: what the cluster holds.
        written: what this operator wrote last: where it came back unreadable, it still tells since
            when things are as they are.
    """
    own = written if isinstance(written, SpeculativeDeploymentStatus) else None
    told, leaders = objects.status or own, objects.leaders
    ready = sum(pod.ready for pod in leaders)
    generation = objects.metadata.generation
    before = {each.type: each for each in told.conditions} if told else {}
    found: dict[ConditionType | AlarmKind, Finding] = {
        ConditionType.READY: ready_condition(ready, findings),
        ConditionType.PROGRESSING: progressing_condition(findings),
        ConditionType.DEGRADED: degraded_condition(findings, objects),
        ConditionType.DRAFT_COMPATIBLE: findings.draft_compatible,
        ConditionType.TUNING: findings.tuning_finding,
        **alarms(findings.alarms, before),
    }
    status = SpeculativeDeploymentStatus(
        observed_generation=generation,
        replicas=sum(not pod.terminating for pod in leaders),
        ready_replicas=ready,
        ready=f"{ready}/{findings.replicas}",
        reason=telling(found),
        selector=f"{names.LABEL_NAME}={objects.key.name},{names.LABEL_ROLE}={names.ROLE_LEADER}",
        warnings=_warnings(findings),
        left_out=findings.left_out,
        conditions=tuple(
            condition(kind, each, before.get(kind), generation, findings.now_s)
            for kind, each in found.items()
        ),
        engine=findings.engine,
        draft=findings.draft,
        weights=findings.weights,
        depth=_depth(findings, objects),
        rollout=_rollout(findings.rollout, told),
        adaptive_verification=findings.comparisons.get(Compares.ADAPTIVE_VERIFICATION),
        drafting=findings.comparisons.get(Compares.DRAFTING),
        draft_trial=findings.comparisons.get(Compares.DRAFT),
        training=findings.training,
        measured=findings.measured,
        gained=findings.gained,
        tuning=findings.tuning,
        quality=findings.quality,
        last_reconcile_time=rfc3339(findings.now_s),
    )
    return scrubbed_status(status, objects)


def _warnings(findings: Findings) -> tuple[str, ...]:
    first = findings.warnings[:MOST_WARNINGS]
    return tuple(shortened(str(each), LONGEST_WARNING) for each in first)


def scrubbed_status(status: Status, objects: TunedObjects) -> Status:
    """Without secrets, which words of engines, hubs and API servers may have in them."""
    said = status.model_dump(mode="json")
    clean = scrubbed_value(said, literal_secrets(objects.resource))
    return status if clean == said else type(status).model_validate(clean)


def same(new: ReportedStatus, old: ReportedStatus | None) -> bool:
    """Whether both say the same, whenever they were written.

    The order of conditions is the server's affair.
    """
    if old is None:
        return False
    return _said(new) == _said(old)


def as_written(status: ReportedStatus) -> Manifest:
    """The status as it is sent: what is unknown is absent, not an empty string."""
    written = _without_blanks(status.model_dump(mode="json", exclude_none=True))
    return written if isinstance(written, dict) else {}


def only_readiness_moved(new: ReportedStatus, old: ReportedStatus) -> bool:
    """Whether both say the same but for which pods there are, and what follows from that."""
    return _but_readiness(new) == _but_readiness(old)


def _but_readiness(status: ReportedStatus) -> ReportedStatus:
    return status.model_copy(
        update={
            **dict.fromkeys(_READINESS & type(status).model_fields.keys()),
            "conditions": (),
            "depth": status.depth.model_copy(update={"applied_replicas": 0}),
            "last_reconcile_time": None,
        }
    )


def _without_blanks(value: JsonValue) -> JsonValue:
    if isinstance(value, dict):
        return {name: _without_blanks(each) for name, each in value.items() if each != ""}
    if isinstance(value, list):
        return [_without_blanks(each) for each in value]
    return value


def _said(status: ReportedStatus) -> ReportedStatus:
    conditions = tuple(sorted(status.conditions, key=lambda each: each.type))
    return status.model_copy(update={"conditions": conditions, "last_reconcile_time": None})


def essence(status: ReportedStatus) -> tuple[object, ...]:
    """What people wait for; the rest may wait up to a minute.

    What moves with every measurement (numbers, messages, what the tuner is at, how many replicas
    obey) is no part of it, else steady traffic would mean steady writing.
    """
    conditions = frozenset(
        # Why somebody paused it is no measurement.
        (each.type, each.status, each.reason, each.message if each.reason == Reason.PAUSED else "")
        for each in status.conditions
        if each.type is not ConditionType.TUNING
    )
    shared = (status.observed_generation, conditions, status.depth.schedule)
    if not isinstance(status, SpeculativeDeploymentStatus):
        return shared
    compared = status.comparison
    return (
        *shared,
        status.replicas,
        status.ready_replicas,
        status.ready,
        status.selector,
        status.engine,
        status.draft,
        # At most a hundred writes for a fetch, however long it takes.
        status.weights and (status.weights.percent, status.weights.models),
        status.rollout and (status.rollout.revision, status.rollout.stage),
        compared and (compared.state, compared.revision, compared.result),
        status.training and (status.training.phase, status.training.run),
        status.quality,
    )


def _rollout(
    now: RolloutStatus | None, before: SpeculativeDeploymentStatus | None
) -> RolloutStatus | None:
    """The one under way; the last one stays to be read."""
    last = before.rollout if before else None
    if now is not None or last is None:
        return now
    if last.stage == OFFERED:
        # It never began.
        return None
    ended: dict[str, str] = {"stage": COMPLETE}
    if last.stage == Stage.ROLLED_BACK:
        # Nothing was ever told of its end, which may come within one pass: a veto is no success.
        ended |= {"revision": last.stable, "reason": Reason.REVERTED, "message": BACK}
    return last.model_copy(update=ended)


def _depth(findings: Findings, objects: Objects) -> DepthStatus:
    if findings.document is None:
        return DepthStatus(summary=findings.fixed_depth)
    return depth_status(
        findings.document, findings.document_written_at_s, objects, findings.counters
    )


def depth_status(
    document: DepthDocument,
    written_at_s: float,
    objects: TunedObjects,
    counters: Mapping[str, PodCounters],
) -> DepthStatus:
    """What a depth document says, and how many replicas run it.

    Args:
        document: in force.
        written_at_s: Unix seconds.
        objects: what the cluster holds.
        counters: by pod.
    """
    found = (counters.get(pod.name) for pod in objects.leaders if pod.ready)
    return DepthStatus(
        summary=summary(document.schedule),
        schedule=tuple((r.first, r.last, r.depth) for r in merged(document.schedule)),
        generation=document.generation,
        applied_replicas=sum(each is not None and each.follows(document) for each in found),
        since=rfc3339(written_at_s),
    )
