"""The conditions of a status: which are true, and why. Pure."""

from collections import Counter
from collections.abc import Mapping
from typing import Final

from fathom.api.conditions import AlarmKind, ConditionStatus, ConditionType, Reason, title_of
from fathom.api.status import (
    Condition,
)
from fathom.cluster.missing_pods import unplaced
from fathom.cluster.pod_failures import (
    Trouble,
    trouble_with_failed,
    trouble_with_pod,
    trouble_with_workload,
)
from fathom.cluster.snapshot import Objects
from fathom.health import cause_of, holds
from fathom.reconcile.status_input import Finding, Findings
from fathom.text import counted, shortened
from fathom.times import rfc3339

LONGEST_MESSAGE: Final = 32_768
"""Length of a condition's message: no longer than one of Kubernetes' own. A spec may have as many
problems as lines, and an API server quotes what it refuses."""


def condition(
    kind: ConditionType | AlarmKind,
    found: Finding,
    before: Condition | None,
    generation: int,
    now_s: float,
) -> Condition:
    since = rfc3339(now_s)
    if before is not None and before.status is found.status:
        since = before.last_transition_time
    return Condition(
        type=kind,
        status=found.status,
        reason=found.reason,
        message=shortened(found.message, LONGEST_MESSAGE),
        observed_generation=generation,
        last_transition_time=since,
    )


def alarms(
    active: Mapping[AlarmKind, Finding], before: Mapping[ConditionType | AlarmKind, Condition]
) -> dict[ConditionType | AlarmKind, Finding]:
    """Alarms that are active, and those that are over; one never raised is not mentioned."""
    over = {kind: _over(each) for kind, each in before.items() if isinstance(kind, AlarmKind)}
    found = {**over, **active}
    return {kind: found[kind] for kind in AlarmKind if kind in found}


def _over(before: Condition) -> Finding:
    """What it was, and since when: nothing else of the status would say so."""
    message = before.message
    if holds(before):
        since = f"({before.reason}) since {before.last_transition_time}"
        message = f"{title_of(before.reason)} {since}: {cause_of(before)}"
    return Finding(ConditionStatus.FALSE, Reason.CLEARED, message)


def telling(found: Mapping[ConditionType | AlarmKind, Finding]) -> Reason:
    """The reason that says most: of what is wrong, else of what is under way or held."""
    degraded, progressing = found[ConditionType.DEGRADED], found[ConditionType.PROGRESSING]
    if degraded.status is ConditionStatus.TRUE:
        return degraded.reason
    if progressing.reason is not Reason.UP_TO_DATE:
        return progressing.reason
    return found[ConditionType.READY].reason


def ready_condition(ready: int, findings: Findings) -> Finding:
    wanted = findings.replicas
    if wanted == 0 and ready == 0:
        return Finding(ConditionStatus.FALSE, Reason.SCALED_TO_ZERO, "spec.replicas is 0.")
    message = f"{ready} of {wanted} replicas are ready."
    if ready >= wanted:
        return Finding(ConditionStatus.TRUE, Reason.ALL_REPLICAS_READY, message)
    return Finding(ConditionStatus.FALSE, Reason.REPLICAS_NOT_READY, message)


def progressing_condition(findings: Findings) -> Finding:
    progress = findings.progress
    if progress is None:
        return Finding(
            ConditionStatus.FALSE,
            findings.problems[0].reason if findings.problems else Reason.INVALID_SPEC,
            "nothing is carried out until the spec is one that can be: see Degraded.",
        )
    message = " ".join(
        each for each in (progress.message, findings.offer, findings.without_effect) if each
    )
    status = ConditionStatus.TRUE if progress.moving else ConditionStatus.FALSE
    return Finding(status, progress.reason, message)


def degraded_condition(findings: Findings, objects: Objects) -> Finding:
    """The reason of the first that applies, and what is to say of each.

    In this order: spec, names, API server, what was kept, weights, pods, depth, engines.
    """
    found = (
        _refused_spec(findings, objects),
        _name_taken(findings, objects),
        _refused(findings),
        _unread(findings),
        _rolled_back(findings),
        _no_way_back(findings),
        _not_fetched(findings),
        _in_trouble(objects, findings.asks_for_room),
        _depth_not_applied(findings),
        _engine_differs(findings),
    )
    true = [each for each in found if each is not None]
    if not true:
        return Finding(ConditionStatus.FALSE, Reason.AS_EXPECTED, "")
    return _true(true[0].reason, " And ".join(each.message for each in true))


def _refused_spec(findings: Findings, objects: Objects) -> Finding | None:
    if not findings.problems:
        return None
    listed = " ".join(str(problem) for problem in findings.problems)
    runs = _runs(objects)
    if findings.progress is not None and not (objects.workloads or findings.taken):
        runs = "the last spec that could be is carried out"
    return _true(findings.problems[0].reason, f"{listed} Until that is fixed, {runs}.")


def _runs(objects: Objects) -> str:
    return "what runs keeps running" if objects.workloads else "nothing is started"


def _name_taken(findings: Findings, objects: Objects) -> Finding | None:
    if not findings.taken:
        return None
    sentences = " ".join(str(each) for each in findings.taken)
    return _true(Reason.NAME_TAKEN, f"{sentences} Until then, {_runs(objects)}.")


def _refused(findings: Findings) -> Finding | None:
    sentences = " ".join(findings.refusals)
    return _true(Reason.CHILD_REFUSED, sentences) if sentences else None


def _unread(findings: Findings) -> Finding | None:
    unread = findings.checkpoint_unread
    return _true(Reason.STATE_UNREADABLE, unread) if unread else None


def _rolled_back(findings: Findings) -> Finding | None:
    return _true(Reason.ROLLED_BACK, findings.rolled_back) if findings.rolled_back else None


def _no_way_back(findings: Findings) -> Finding | None:
    unknown = findings.no_way_back
    return _true(Reason.STABLE_SPEC_UNKNOWN, unknown) if unknown else None


def _not_fetched(findings: Findings) -> Finding | None:
    trouble = findings.weights_trouble
    return _true(trouble.reason, trouble.message) if trouble else None


def _in_trouble(objects: Objects, asks_for_room: str) -> Finding | None:
    trouble = _worst_trouble(objects, asks_for_room)
    return _true(trouble.reason, trouble.message) if trouble else None


def _depth_not_applied(findings: Findings) -> Finding | None:
    if not findings.not_obeyed:
        return None
    pods = ", ".join(findings.not_obeyed)
    return _true(
        Reason.DEPTH_NOT_OBEYED,
        f"the engines of {pods} do not report the depth that was written for them; the "
        "tuner continues without them as long as most pods obey. "
        f"{Reason.DEPTH_NOT_OBEYED.advice}",
    )


def _engine_differs(findings: Findings) -> Finding | None:
    if not findings.differing:
        return None
    pod, parts = next(iter(findings.differing.items()))
    listed = ", ".join(f"{each.part} {each.told} instead of {each.asked}" for each in parts)
    others = counted(len(findings.differing) - 1, "more pod differs", "more pods differ")
    more = f" {others}." if len(findings.differing) > 1 else ""
    return _true(
        Reason.ENGINE_DIFFERS,
        f"the engine of {pod} says that it runs with {listed}, as was rendered for it.{more} "
        "Depth is tuned by the batches, depths and token budget that engines report. "
        f"{Reason.ENGINE_DIFFERS.advice}",
    )


def _true(reason: Reason, message: str) -> Finding:
    return Finding(ConditionStatus.TRUE, reason, message)


def _worst_trouble(objects: Objects, asks_for_room: str) -> Trouble | None:
    """One trouble, how many more of its kind there are, and what keeps others from coming.

    That there is no room for a canary which asks for it is an answer, and no trouble.
    """
    asks = asks_for_room and asks_for_room in unplaced(objects)
    pods = sorted(
        (pod for pod in objects.engines if not (asks and pod.revision == asks_for_room)),
        key=lambda pod: pod.name,
    )
    found = [trouble_with_pod(pod, objects.nodes) for pod in pods]
    troubles = [each for each in found if each is not None]
    refusals = (
        trouble_with_workload(each, objects.refused_pods.get(each.name, ""))
        for each in objects.workloads
        if not (asks and each.revision == asks_for_room)
    )
    refused = next((each for each in refusals if each is not None), None)
    if not troubles:
        return refused or _failed_for_good(objects)
    first = troubles[0]
    others = counted(len(troubles) - 1, "more pod is", "more pods are")
    more = f" {others} in trouble." if len(troubles) > 1 else ""
    # A leader fails where its workers are refused: the cause is worth more than the consequence.
    why = f" And {refused.message}" if refused else ""
    return Trouble(first.reason, f"{first.message}{more}{why}")


def _failed_for_good(objects: Objects) -> Trouble | None:
    """Failed pods of revisions whose replicas are missing: who are all there need no others."""
    ready = Counter(pod.revision for pod in objects.leaders if pod.ready)
    asked: Counter[str] = Counter()
    for workload in objects.workloads:
        asked[workload.revision] += workload.replicas
    missing = asked - ready
    failed = (pod for pod in objects.failed if pod.revision in missing)
    return trouble_with_failed(failed, objects.read_at_s)
