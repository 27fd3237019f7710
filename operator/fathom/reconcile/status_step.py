"""Whether the status says anything new, and what came of writing it. Pure."""

from dataclasses import dataclass, replace
from typing import Final

from fathom.api import names
from fathom.api.conditions import EventReason
from fathom.api.status import SpeculativeDeploymentStatus
from fathom.core.cluster.manifest import Manifest, Seen
from fathom.core.cluster.snapshot import Objects, status_in
from fathom.core.reporting.events import Event, Severity, transitions
from fathom.core.reporting.findings import Findings
from fathom.core.reporting.status import status_of
from fathom.reconcile.loop_state import LoopState
from fathom.reconcile.writing.retry import Retry

NEVER_S: Final = float("inf")


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusStep:
    state: LoopState
    status: SpeculativeDeploymentStatus
    """As it should be."""
    wait_s: float
    """Seconds until it is to be written; 0: now; infinity: it says nothing new."""


def status_step(state: LoopState, findings: Findings, objects: Objects) -> StatusStep:
    """Whether the status says anything new."""
    said = state.said
    # One that came back unreadable still tells since when things are as they are.
    told = objects.status or said.written
    new = status_of(findings, replace(objects, status=told))
    if said.stands(new, objects.status):
        state = replace(state, said=replace(said, refused=None))
        return StatusStep(state=state, status=new, wait_s=NEVER_S)
    wait_s = said.wait_s(new, objects.status, findings.now_s)
    if wait_s <= 0:
        state = replace(state, objects=None)
    return StatusStep(state=state, status=new, wait_s=max(0.0, wait_s))


def after_written(
    state: LoopState,
    new: SpeculativeDeploymentStatus,
    written: Manifest,
    objects: Objects,
    *,
    now_s: float,
) -> tuple[LoopState, tuple[Event, ...]]:
    """What is remembered, and told, of a status that was written."""
    said = state.said
    kept, version = status_in(written), Seen.of(written).resource_version
    # One object for both, as they are most often equal.
    shared = new if kept == new else kept
    events = transitions(new, said.written or objects.status)
    after = said.after(new, kept=shared, version=version, now_s=now_s)
    return replace(state, said=after), tuple(events)


def after_refused(
    state: LoopState, why: str, now_s: float
) -> tuple[LoopState, Retry, tuple[Event, ...]]:
    """What is remembered of a status that was refused, and, once it has lasted, told."""
    before = state.said.refused
    retry = before.again(now_s) if before else Retry(now_s)
    state = replace(state, said=replace(state.said, refused=retry))
    if not retry.lasting or (before and before.lasting):
        return state, retry, ()
    message = (
        "the status of this resource cannot be written, and says what was; pods and depth are "
        f"looked after all the same. {names.PLURAL}/status is for the operator to patch: does "
        "its role allow it, which policy or webhook refuses it, is the CRD as new as the "
        f"operator? The API server says: {why}"
    )
    return state, retry, (Event(Severity.WARNING, EventReason.STATUS_REFUSED, message),)
