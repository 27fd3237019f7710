"""Takes the training of a draft one step on. Pure.

Proposed, by an alarm or a person; approved, by a person who names the very run; trained by one Job;
taken in by another; tried in one replica; adopted, by an edit of the spec, or dismissed. Nothing
here writes the spec, and nothing begins that nobody approved.
"""

import hashlib
import json
from dataclasses import dataclass, replace
from math import inf, nextafter
from typing import Final

from fathom.api.status import ArmState, Compared, ComparisonStatus
from fathom.api.training import ASKED_FOR, TrainingPhase, TrainingSpec
from fathom.model_refs import ModelRef
from fathom.training.intake import IntakeStage, IntakeStanding
from fathom.training.record import (
    AWAITS_APPROVAL,
    ON_TRIAL,
    TAKEN_IN,
    WEEK_S,
    Acceptance,
    TrainingRecord,
    over_budget,
)

_RUN_LENGTH: Final = 8
"""Hex digits of a run."""
LATEST_S: Final = 3600.0
"""After which a Job is not made any more: its GPU hours count from when its run was begun."""
_UNSEEN_S: Final = 300.0
"""By then a Job that was made has been read."""
_NOT_FASTER: Final = frozenset({Compared.SLOWER, Compared.NO_DIFFERENCE})


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """Why a training is to be proposed."""

    reason: str
    """An alarm's, or `ASKED_FOR`."""
    why: str
    """The same as a sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStanding:
    """The Job that trains, as it was read."""

    is_there: bool = False
    is_complete: bool = False
    failed: str = ""
    """Why it was given up, as Kubernetes' reason; empty: it was not."""
    waits: str = ""
    """What keeps its pod from starting, in Kubernetes' words; empty: nothing that is known."""
    started_at_s: float | None = None
    """From when its deadline counts; None: it has not begun."""
    deadline_s: float | None = None
    """After which it is ended, by what it was made from; None: it has no deadline."""
    is_to_be_made: bool = False
    """Whether this operator began its run, and it was not made for certain: no other can know."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingInput:
    """One pass's view."""

    now_s: float
    spec: TrainingSpec | None
    """None: the spec in force allows no training."""
    target: ModelRef
    draft: ModelRef
    """That the spec in force names."""
    cause: Cause | None
    """An alarm that speaks for another draft; None: none does."""
    acceptance: Acceptance
    approved: str
    """The run that a person approves; empty: none."""
    dismissed: str
    """The run that a person dismisses; empty: none."""
    asked: str
    """A person's wish for a proposal; empty: there is none."""
    settles: bool
    """Whether the newest edit may be taken back still: a typo ends nothing within seconds."""
    held: str
    """Why nothing begins, as a sentence; empty: it may."""
    no_trial: str
    """What in the spec keeps a draft from being tried, and what to do; empty: nothing."""
    job: JobStanding
    intake: IntakeStanding
    goes_first: str
    """What the spec has compared before the trained draft, as a field; empty: nothing."""
    verdict: ComparisonStatus | None
    """What is found of the replica with the trained draft; None: there is none."""


def next_training(before: TrainingRecord, given: TrainingInput) -> TrainingRecord:
    """What is to be kept after this pass. It never raises, and never skips a phase.

    Args:
        before: what was kept.
        given: this pass's view.
    """
    record = replace(before, starts=before.recent(given.now_s))
    if record.phase is not None and not record.target:
        record = replace(record, target=given.target.id)
    if given.settles and not _is_adopted(record, given):
        return record
    if record.is_active:
        ended = _ended(record, given)
        return _onward(_without_wish(record, given), given) if ended is None else ended
    return _proposed(record, given)


def run_of(record: TrainingRecord, given: TrainingInput) -> str:
    """What a person approves: other models, another template or budget are another run."""
    spec = given.spec.model_dump(mode="json") if given.spec is not None else None
    models = [[ref.id, ref.revision] for ref in (given.target, given.draft)]
    text = json.dumps([models, spec, record.reason, record.proposed_at_s], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:_RUN_LENGTH]


def _without_wish(record: TrainingRecord, given: TrainingInput) -> TrainingRecord:
    """With a person's wish done: its annotation stays, and asks for nothing any more."""
    return replace(record, asked=given.asked or record.asked)


def _ended(record: TrainingRecord, given: TrainingInput) -> TrainingRecord | None:
    """It is over by what a person did; None: it is not."""
    if _is_adopted(record, given):
        return record.at(TrainingPhase.ADOPTED, given.now_s)
    if given.spec is None:
        return _dismissed(record, given, _why_none(given))
    if given.target.id != record.target:
        return _dismissed(record, given, "the spec names another model by now")
    if given.draft != record.draft:
        return _dismissed(record, given, _why_another(record, given))
    if given.dismissed and given.dismissed == record.run:
        return _dismissed(record, given, "a person dismissed it")
    return None


def _is_adopted(record: TrainingRecord, given: TrainingInput) -> bool:
    return record.result is not None and record.result.is_of(given.draft)


def _why_none(given: TrainingInput) -> str:
    if given.draft.id:
        return "draft.training is no longer in the spec in force"
    return "no replica has a draft: speculation.drafting is Disabled, or draft.id is empty"


def _why_another(record: TrainingRecord, given: TrainingInput) -> str:
    result = record.result
    if result is None or given.draft.id != result.id:
        return "the spec names another draft by now, or another revision of it"
    return (
        f"the spec names draft {result.id}, but at another revision than was tried: set "
        f"draft.revision to {result.revision}"
    )


def _dismissed(record: TrainingRecord, given: TrainingInput, why: str) -> TrainingRecord:
    return replace(record, ending=why).at(TrainingPhase.DISMISSED, given.now_s)


def _proposed(record: TrainingRecord, given: TrainingInput) -> TrainingRecord:
    """A new proposal, where something speaks for one."""
    if given.spec is None or not given.draft.id:
        return record
    asks = bool(given.asked) and given.asked != record.asked
    cause = Cause(reason=ASKED_FOR, why="a person asked for it") if asks else given.cause
    if cause is None or not (asks or _may_ask(record, given)):
        return record
    fresh = replace(
        record,
        reason=cause.reason,
        why=cause.why,
        target=given.target.id,
        draft=given.draft,
        proposed_at_s=_proposed_at_s(record, given),
        acceptance=given.acceptance,
        result=None,
        ending="",
    ).at(TrainingPhase.PROPOSED, given.now_s)
    return _without_wish(replace(fresh, run=run_of(fresh, given)), given)


def _proposed_at_s(record: TrainingRecord, given: TrainingInput) -> float:
    """Now, and later than ever before: a clock that was set back makes no run twice."""
    return max(given.now_s, nextafter(record.proposed_at_s, inf))


def _may_ask(record: TrainingRecord, given: TrainingInput) -> bool:
    """Whether an alarm may ask: of one pair, once a week."""
    is_another = (record.target, record.draft) != (given.target.id, given.draft)
    return is_another or not 0 <= given.now_s - record.since_s < WEEK_S


def _onward(record: TrainingRecord, given: TrainingInput) -> TrainingRecord:
    if record.phase in AWAITS_APPROVAL or record.phase is TrainingPhase.APPROVED:
        return _begun(record, given)
    if record.phase is TrainingPhase.TRAINING:
        return _trained(record, given)
    if record.phase in TAKEN_IN:
        return _taken_in(record, given)
    return _tried(record, given) if record.phase in ON_TRIAL else record


def _begun(record: TrainingRecord, given: TrainingInput) -> TrainingRecord:
    """Begun, where a person approved exactly this, and nothing holds it."""
    current = _current(record, given)
    had = {record.begun, *(each.run for each in record.starts)}
    if given.spec is None or given.approved != current.run or current.run in had:
        # An edit since makes it another run, which nobody approved.
        awaits = record.phase in AWAITS_APPROVAL
        return current if awaits else current.at(TrainingPhase.PROPOSED, given.now_s)
    if given.held or over_budget(current, given.spec, given.now_s):
        return current.at(TrainingPhase.APPROVED, given.now_s)
    return current.with_start(given.spec, given.now_s)


def _current(record: TrainingRecord, given: TrainingInput) -> TrainingRecord:
    """With the run that the spec asks for now.

    An edit that is taken back brings no run back: its approval was void meanwhile.
    """
    if run_of(record, given) == record.run:
        return record
    edited = replace(record, proposed_at_s=_proposed_at_s(record, given))
    return replace(edited, run=run_of(edited, given))


def _trained(record: TrainingRecord, given: TrainingInput) -> TrainingRecord:
    job = given.job
    if not job.is_there:
        why = _why_no_job(record, given)
        return _failed(_with_hours(record, given), given, why) if why else record
    seen = record.with_job(given.now_s)
    if job.failed:
        return _failed(seen, given, f"its Job failed: {job.failed}")
    return seen.at(TrainingPhase.INTAKE, given.now_s) if job.is_complete else seen


def _why_no_job(record: TrainingRecord, given: TrainingInput) -> str:
    """Why none is waited for, or made, any more; empty: it is to come."""
    waited_s = given.now_s - record.since_s
    if record.is_job_seen:
        return "its Job was deleted before it ended"
    if run_of(record, given) != record.begun:
        return (
            "the spec was edited before its Job was made, so that no user approved what would run"
        )
    if given.job.is_to_be_made:
        return "its Job could not be made within an hour" if waited_s > LATEST_S else ""
    lost = (
        "its Job is not there, and may have been: an operator ended while it made it, or the API "
        "server did not answer"
    )
    return lost if waited_s > _UNSEEN_S else ""


def _with_hours(record: TrainingRecord, given: TrainingInput) -> TrainingRecord:
    """With its GPU hours counted, unless its Job was never made for certain.

    Within the hour an edit ends the run before that is known: an answer may be on its way.
    """
    never = given.job.is_to_be_made and given.now_s - record.since_s > LATEST_S
    return record.without_start() if never else record.with_job(given.now_s)


def _failed(record: TrainingRecord, given: TrainingInput, why: str) -> TrainingRecord:
    """The same is proposed again, as another run: a person decides whether it is worth it."""
    ended = replace(
        record,
        ending=f"run {record.begun} failed: {why}",
        proposed_at_s=_proposed_at_s(record, given),
    )
    return replace(ended, run=run_of(ended, given)).at(TrainingPhase.FAILED, given.now_s)


def _taken_in(record: TrainingRecord, given: TrainingInput) -> TrainingRecord:
    """Taken in, or refused: until the Job is deleted, and so made again."""
    if given.intake.draft is not None:
        return replace(record, result=given.intake.draft).at(TrainingPhase.TRIAL, given.now_s)
    refused = given.intake.stage is IntakeStage.REFUSED
    return record.at(TrainingPhase.REFUSED if refused else TrainingPhase.INTAKE, given.now_s)


def _tried(record: TrainingRecord, given: TrainingInput) -> TrainingRecord:
    """What is not faster goes by itself: it serves requests meanwhile."""
    found = given.verdict
    if found is None:
        return record
    if found.state is ArmState.FAILED:
        return _dismissed(record, given, f"its replica was given up: {found.message.rstrip('.')}")
    if found.result in _NOT_FASTER:
        return _dismissed(record, given, "it was not faster than the draft that serves")
    if found.result is Compared.FASTER:
        return record.at(TrainingPhase.FASTER, given.now_s)
    return record
