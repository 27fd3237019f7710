"""What the status says of a training, in sentences that name the next step. Pure."""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from fathom.api import names
from fathom.api.training import AdoptedDraft, TrainingPhase, TrainingStatus
from fathom.cluster.events import Event, EventReason, Severity
from fathom.cluster.kinds import ObjectKey
from fathom.text import counted
from fathom.times import rfc3339
from fathom.training.intake import IntakeStage
from fathom.training.record import TAKEN_IN, TrainingRecord, hours, over_budget
from fathom.training.step import LATEST_S, TrainingInput

_AT_ONCE_S: Final = 30.0
"""Within which a Job is made that nothing holds."""
_DUE: Final = "it begins now"
_OVERDUE: Final = "it begins once the API server takes it; where that refuses, Degraded says why"
_TO_APPROVE: Final = "To have one trained"
_TO_ADOPT: Final = "To give all replicas"
_TO_TAKE_IN: Final = "To have it taken in again"
_WHAT_FOLLOWS: Final = (_TO_APPROVE, _TO_ADOPT, _TO_TAKE_IN)
"""How the part of a message begins that says what a person may do."""


def training_status(
    record: TrainingRecord, given: TrainingInput, key: ObjectKey
) -> TrainingStatus | None:
    """None: nothing was ever proposed.

    Args:
        record: as it is kept.
        given: this pass's view.
        key: of the resource.
    """
    if record.phase is None:
        return None
    return TrainingStatus(
        phase=record.phase,
        run=record.run,
        since=rfc3339(record.since_s),
        reason=record.reason,
        message=_MESSAGES[record.phase](record, given, key),
        job=_job(record, key),
        adopt=_adopt(record),
        gpu_hours_this_week=_budget(record, given),
    )


def _budget(record: TrainingRecord, given: TrainingInput) -> str:
    if given.spec is None:
        return ""
    return f"{hours(record.begun_minutes(given.now_s))}/{given.spec.gpu_hours_per_week}"


def _job(record: TrainingRecord, key: ObjectKey) -> str:
    if record.phase is TrainingPhase.TRAINING:
        return names.training_job(key.name, record.begun)
    return names.intake_job(key.name, record.begun) if record.phase in TAKEN_IN else ""


def _proposed(record: TrainingRecord, given: TrainingInput, key: ObjectKey) -> str:
    return f"Another draft may fit better: {_sentence(record.why)}{_asks(record, given, key)}"


def _failed(record: TrainingRecord, given: TrainingInput, key: ObjectKey) -> str:
    ending = _sentence(record.ending)
    return f"{ending[:1].upper()}{ending[1:]}{_asks(record, given, key)}"


def _approved(record: TrainingRecord, given: TrainingInput, _: ObjectKey) -> str:
    over = over_budget(record, given.spec, given.now_s) if given.spec is not None else ""
    why = _sentence(given.held or over or _DUE)
    return f"Run {record.run} is approved, and has not begun: {why}{_no_trial(given)}"


def _on_trial(record: TrainingRecord, given: TrainingInput, key: ObjectKey) -> str:
    return (
        f"One replica is to have {_of_draft(record)}: {_verdict(given)} To end it: "
        f"{_dismissal(record, key)}."
    )


def _faster(record: TrainingRecord, given: TrainingInput, key: ObjectKey) -> str:
    patch = adoption_patch(_adopt(record))
    return (
        f"{_found_faster(given)} {_TO_ADOPT} {_of_draft(record)}, in Git, or: `kubectl "
        f"patch speculativedeployment {key.name} -n {key.namespace} --type merge -p '{patch}'`. "
        f"To drop it: {_dismissal(record, key)}."
    )


def _found_faster(given: TrainingInput) -> str:
    """What the comparison finds; while it is begun again, that it found so before."""
    found = given.verdict
    if found is not None and found.result is not None:
        return _verdict(given)
    return f"Its replica was faster than the others; it is compared again: {_verdict(given)}"


def _adopted(record: TrainingRecord, given: TrainingInput, _: ObjectKey) -> str:
    if record.result is not None and not record.result.is_of(given.draft):
        return f"The spec named {_of_draft(record)}, and does not any more."
    return f"The spec names {_of_draft(record)}."


def _dismissed(record: TrainingRecord, *_: object) -> str:
    return f"It is over: {_sentence(record.ending)}"


def _asks(record: TrainingRecord, given: TrainingInput, key: ObjectKey) -> str:
    spec = given.spec
    if spec is None:
        return ""
    takes = f"{_TO_APPROVE} for at most {counted(spec.deadline_minutes, 'minute')}"
    if spec.gpus:
        takes += f" on {counted(spec.gpus, 'GPU')}"
    over = over_budget(record, spec, given.now_s)
    later = f" Approved, it waits, since {over}." if over else ""
    return (
        f"{_no_trial(given)} {takes}, approve this run: `{_command(key)} --approve {record.run}`. "
        f"To decline: {_dismissal(record, key)}.{later}"
    )


def _no_trial(given: TrainingInput) -> str:
    """That GPU hours would be spent on a draft that no replica can try; empty: one can."""
    if not given.no_trial:
        return ""
    return f" As the spec is, no replica can try the trained draft: {_sentence(given.no_trial)}"


def _training(record: TrainingRecord, given: TrainingInput, key: ObjectKey) -> str:
    job = names.training_job(key.name, record.begun)
    if given.job.is_to_be_made:
        return f"Job {job} is to be made: {_sentence(given.held or _not_made(record, given))}"
    if not given.job.is_there:
        return f"Job {job} is not there yet, or not any more."
    began_s, deadline_s, ends = given.job.started_at_s, given.job.deadline_s, ""
    if deadline_s is not None and began_s is not None:
        ends = f" It is ended at {rfc3339(began_s + deadline_s)}."
    waits = given.job.waits or (
        "its controller, or a queue, has it wait" if began_s is None else ""
    )
    if waits:
        return f"Job {job} has not begun to train: {_sentence(waits)}{ends}"
    return f"Job {job} trains.{ends} Its log may hold prompts: Fathom repeats none of it."


def _not_made(record: TrainingRecord, given: TrainingInput) -> str:
    """That it comes now; or, once it has not, where it says why, and until when it is tried."""
    if _is_due(record, given):
        return _DUE
    return (
        f"{_OVERDUE}. It is tried until {rfc3339(record.since_s + LATEST_S)}, and needs no other "
        "approval until then"
    )


def _is_due(record: TrainingRecord, given: TrainingInput) -> bool:
    return given.now_s - record.since_s < _AT_ONCE_S


def _intake(record: TrainingRecord, given: TrainingInput, key: ObjectKey) -> str:
    job = names.intake_job(key.name, record.begun)
    if given.intake.stage is IntakeStage.MISSING:
        soon = _DUE if _is_due(record, given) else _OVERDUE
        return f"Job {job} is to be made: {_sentence(given.held or soon)}"
    if given.intake.waits:
        return f"Job {job} has not begun: {_sentence(given.intake.waits)}"
    return f"Job {job} verifies and stores what run {record.begun} left."


def _refused(record: TrainingRecord, given: TrainingInput, key: ObjectKey) -> str:
    job = names.intake_job(key.name, record.begun)
    return (
        f"The draft of run {record.begun} was not taken. {given.intake.refusal} "
        f"{_TO_TAKE_IN}, delete Job {job}. To end it: {_dismissal(record, key)}."
    )


def _command(key: ObjectKey) -> str:
    return f"kubectl fathom train {key.name} -n {key.namespace}"


def _dismissal(record: TrainingRecord, key: ObjectKey) -> str:
    return f"`{_command(key)} --dismiss {record.run}`"


def _of_draft(record: TrainingRecord) -> str:
    result = record.result
    if result is None:
        return "the draft"
    at = f" at {result.revision}" if result.revision else ""
    return f"draft {result.id}{at}"


def _verdict(given: TrainingInput) -> str:
    said = given.verdict.message if given.verdict is not None else ""
    waits = f"{given.goes_first} is compared first" if given.goes_first else ""
    return _sentence(said or waits or "it begins soon")


def cause_and_advice(message: str) -> tuple[str, str]:
    """A message of `training_status` as how it is, and what a person may do; empty: nothing."""
    starts = [at for each in _WHAT_FOLLOWS if (at := message.find(each)) >= 0]
    at = min(starts, default=len(message))
    return message[:at].rstrip(), message[at:]


def adoption_patch(adopt: AdoptedDraft | None) -> str:
    """The merge patch of the resource that gives all replicas a trained draft; JSON."""
    adopted = {"id": adopt.id, "revision": adopt.revision} if adopt is not None else {}
    return json.dumps({"spec": {"draft": adopted}}, separators=(",", ":"))


def _adopt(record: TrainingRecord) -> AdoptedDraft | None:
    result = record.result
    return AdoptedDraft(id=result.id, revision=result.revision) if result is not None else None


def _sentence(text: str) -> str:
    return f"{text.strip().rstrip('.')}."


_Message = Callable[[TrainingRecord, TrainingInput, ObjectKey], str]
_MESSAGES: Final[Mapping[TrainingPhase, _Message]] = {
    TrainingPhase.PROPOSED: _proposed,
    TrainingPhase.APPROVED: _approved,
    TrainingPhase.TRAINING: _training,
    TrainingPhase.INTAKE: _intake,
    TrainingPhase.REFUSED: _refused,
    TrainingPhase.TRIAL: _on_trial,
    TrainingPhase.FASTER: _faster,
    TrainingPhase.ADOPTED: _adopted,
    TrainingPhase.DISMISSED: _dismissed,
    TrainingPhase.FAILED: _failed,
}

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


def training_events(
    before: TrainingRecord, after: TrainingRecord, given: TrainingInput, key: ObjectKey
) -> Iterator[Event]:
    """What is told of a training that came to another phase, with what the status says of it.

    Args:
        before: as it was kept.
        after: as it is kept now.
        given: this pass's view.
        key: of the resource.
    """
    if (before.phase, before.begun) == (after.phase, after.begun):
        return
    reason = _TELLS.get(after.phase) if after.phase is not None else None
    told = training_status(after, given, key)
    if reason is None or told is None:
        return
    bad = after.phase in {TrainingPhase.FAILED, TrainingPhase.REFUSED}
    yield Event(Severity.WARNING if bad else Severity.NORMAL, reason, told.message)
