"""The checks of `fathom status`: a line each, by a resource's own status. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from fathom.api.choices import TuningMode
from fathom.api.conditions import AlarmKind, ConditionStatus, ConditionType, Reason
from fathom.api.status import (
    COMPLETE,
    OFFERED,
    ArmState,
    Compared,
    Condition,
    QualityResult,
    SpeculativeDeploymentStatus,
)
from fathom.cli.cluster import Reported
from fathom.cli.documents import Part
from fathom.health import (
    AS_ASKED,
    NOT_MEASURED,
    advice_on,
    cause_of,
    gained_in_words,
    holds,
    is_measured_now,
    signed,
    unwatched_since,
)
from fathom.times import ago, is_over, lasting, unix_seconds
from fathom.tuning.convergence import DEADLINE_S


class CheckState(StrEnum):
    """What one check found."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"
    UNKNOWN = "unknown"


class StatusCheck(Part):
    """One line."""

    subject: str
    """What was checked, in a word or two."""
    state: CheckState
    text: str
    hint: str = ""
    """What to do; empty: nothing."""


_HAS_ITS_LINE: Final = frozenset({Reason.INVALID_SPEC, Reason.WEIGHTS_NOT_FETCHED})
"""Reasons of Degraded that are the subject of another line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Given:
    """What every check sees."""

    name: str
    generation: int
    status: SpeculativeDeploymentStatus
    cause: str
    """The headline's: what it says is not repeated below."""
    now_s: float

    def true(self, kind: ConditionType) -> Condition | None:
        """A condition that is True; None: it is not."""
        found = self.status.condition(kind)
        return found if found is not None and holds(found) else None

    @property
    def measures(self) -> bool:
        """Whether what was measured last is of the present."""
        return is_measured_now(self.status, self.now_s)

    def sentence(self, condition: Condition, *, lasts: bool = False) -> str:
        """The reason, for how long if asked, and the cause where the headline does not say it."""
        cause, reason = cause_of(condition), condition.reason
        if lasts:
            reason = f"{reason}, {lasting(condition.last_transition_time, self.now_s)}"
        return reason if not cause or cause in self.cause else f"{reason}: {cause}"

    def advice(self, condition: Condition) -> str:
        """What to do, where the headline does not say it."""
        advice = advice_on(condition, self.status, self.name)
        return "" if advice in self.cause else advice


def status_checks(reported: Reported, cause: str, now_s: float) -> Iterator[StatusCheck]:
    """Every check of a resource.

    Args:
        reported: the resource as it was read.
        cause: what the headline says, and no check says again.
        now_s: Unix seconds.
    """
    given = _Given(
        name=reported.metadata.name,
        generation=reported.metadata.generation,
        status=reported.status or SpeculativeDeploymentStatus(),
        cause=cause,
        now_s=now_s,
    )
    yield _operator(given, unreadable=reported.unreadable)
    past = bool(unwatched_since(given.status, now_s))
    for each in _of_status(given) if given.status.conditions else ():
        # What was fine then may not be so now.
        forgotten = past and each.state is CheckState.OK
        yield each.model_copy(update={"state": CheckState.UNKNOWN}) if forgotten else each


def _of_status(given: _Given) -> Iterator[StatusCheck]:
    yield from _degraded(given)
    yield from _spec(given)
    yield from _draft(given)
    yield from _weights(given)
    yield _replicas(given)
    yield from _rollout(given)
    yield _depth(given)
    yield from _tuning(given)
    yield from _alarm_checks(given)
    yield _traffic(given)
    yield from _gain(given)
    yield from _compared(given)
    yield from _quality(given)
    for each in given.status.left_out:
        yield StatusCheck(subject="not made", state=CheckState.UNKNOWN, text=each)


def _operator(given: _Given, *, unreadable: bool) -> StatusCheck:
    status, last = given.status, given.status.last_reconcile_time
    reconciled = f"reconciled {ago(last, given.now_s)}" if last else "reported"
    state, text = CheckState.OK, f"{reconciled}, generation {status.observed_generation}"
    if not status.conditions or unwatched_since(status, given.now_s):
        state = CheckState.FAILED
        text = reconciled if status.conditions else "has not reported"
        text = "has written a status that cannot be read here" if unreadable else text
    elif status.observed_generation < given.generation:
        state, text = CheckState.WARNING, f"{text} of {given.generation}"
    return StatusCheck(subject="operator", state=state, text=text)


def _degraded(given: _Given) -> Iterator[StatusCheck]:
    """What no line below has as its subject."""
    found = given.true(ConditionType.DEGRADED)
    if found is not None and found.reason not in _HAS_ITS_LINE:
        yield StatusCheck(
            subject="degraded",
            state=CheckState.FAILED,
            text=given.sentence(found, lasts=True),
            hint=given.advice(found),
        )


def _spec(given: _Given) -> Iterator[StatusCheck]:
    degraded = given.true(ConditionType.DEGRADED)
    if degraded is not None and degraded.reason == Reason.INVALID_SPEC:
        yield StatusCheck(
            subject="spec",
            state=CheckState.FAILED,
            text=given.sentence(degraded),
            hint=given.advice(degraded),
        )
    elif not given.status.warnings:
        yield StatusCheck(subject="spec", state=CheckState.OK, text="no warning")
    for each in given.status.warnings:
        yield StatusCheck(subject="spec", state=CheckState.WARNING, text=each)


def _draft(given: _Given) -> Iterator[StatusCheck]:
    found = given.status.condition(ConditionType.DRAFT_COMPATIBLE)
    if found is None:
        return
    if holds(found):
        text = _joined(given.status.draft.family, found.reason)
        yield StatusCheck(subject="draft", state=CheckState.OK, text=text)
        return
    state = CheckState.FAILED if found.status is ConditionStatus.FALSE else CheckState.UNKNOWN
    if found.reason == Reason.DOUBTFUL:
        state = CheckState.WARNING
    yield StatusCheck(
        subject="draft", state=state, text=given.sentence(found), hint=given.advice(found)
    )


def _weights(given: _Given) -> Iterator[StatusCheck]:
    weights, degraded = given.status.weights, given.true(ConditionType.DEGRADED)
    if weights is None:
        return
    state = CheckState.OK if weights.models else CheckState.WARNING
    if degraded is not None and degraded.reason == Reason.WEIGHTS_NOT_FETCHED:
        state = CheckState.FAILED
    yield StatusCheck(subject="weights", state=state, text=weights.summary or "being fetched")


def _replicas(given: _Given) -> StatusCheck:
    status, ready = given.status, given.status.condition(ConditionType.READY)
    version = f"vLLM {status.engine.version}" if status.engine.version else ""
    text = _joined(f"{status.ready} ready" if status.ready else "not known", version)
    if ready is None:
        return StatusCheck(subject="replicas", state=CheckState.UNKNOWN, text=text)
    degraded = given.true(ConditionType.DEGRADED)
    if holds(ready) or ready.reason == Reason.SCALED_TO_ZERO:
        state = CheckState.OK
    elif given.true(ConditionType.PROGRESSING) and degraded is None:
        state = CheckState.WARNING
    else:
        state = CheckState.FAILED
    return StatusCheck(subject="replicas", state=state, text=text)


def _rollout(given: _Given) -> Iterator[StatusCheck]:
    progressing, rollout = given.status.condition(ConditionType.PROGRESSING), given.status.rollout
    if progressing is not None:
        state = CheckState.WARNING
        if progressing.reason in {Reason.PAUSED, Reason.ROLLOUT_PAUSED}:
            state = CheckState.UNKNOWN
        elif progressing.reason == Reason.UP_TO_DATE:
            state = CheckState.OK
        text, hint = given.sentence(progressing), given.advice(progressing)
        yield StatusCheck(subject="rollout", state=state, text=text, hint=hint)
    if rollout is None or rollout.stage in {"", COMPLETE}:
        return
    if rollout.stage == OFFERED:
        text = f"a rollout is offered: {rollout.why or rollout.message}"
        hint = f"`kubectl fathom rollout {given.name}` begins it."
        yield StatusCheck(subject="upgrade", state=CheckState.UNKNOWN, text=text, hint=hint)
        return
    entered = f"{rollout.stage} {ago(rollout.since, given.now_s)}"
    text = entered if rollout.message in given.cause else _joined(entered, rollout.message)
    failed = given.true(ConditionType.DEGRADED) is not None
    state = CheckState.FAILED if failed else CheckState.WARNING
    yield StatusCheck(subject="revision", state=state, text=text)


def _depth(given: _Given) -> StatusCheck:
    status, depth = given.status, given.status.depth
    if not depth.summary:
        return StatusCheck(subject="depth", state=CheckState.UNKNOWN, text="not known")
    if not depth.generation:
        return StatusCheck(subject="depth", state=CheckState.OK, text=depth.summary)
    applied = f"in force on {depth.applied_replicas} of {status.ready_replicas} ready replicas"
    since = lasting(depth.since, given.now_s) if depth.since else ""
    state = CheckState.WARNING
    if not status.ready_replicas:
        state, applied = CheckState.UNKNOWN, "no replica is ready"
    elif depth.applied_replicas >= status.ready_replicas:
        state = CheckState.OK
    elif not is_over(unix_seconds(depth.since) or 0.0, DEADLINE_S, given.now_s):
        state, applied = CheckState.OK, f"written just now, {applied} by the last report"
    shown = _joined(depth.summary, applied, since)
    return StatusCheck(subject="depth", state=state, text=shown)


def _tuning(given: _Given) -> Iterator[StatusCheck]:
    found, summary = given.status.condition(ConditionType.TUNING), given.status.tuning.summary
    if found is None:
        return
    fine = holds(found) or found.reason in AS_ASKED
    text = given.sentence(found)
    text = f"{summary}{text.removeprefix(found.reason)}" if summary else text
    hint = given.advice(found)
    if summary.startswith(f"{TuningMode.ADVISE}/"):
        hint = f"`kubectl fathom advise {given.name}` says which depth to write."
    state = CheckState.OK if fine else CheckState.WARNING
    yield StatusCheck(subject="tuning", state=state, text=text, hint=hint)


def _alarm_checks(given: _Given) -> Iterator[StatusCheck]:
    active = [
        each for each in given.status.conditions if isinstance(each.type, AlarmKind) and holds(each)
    ]
    for each in active:
        yield StatusCheck(
            subject="alarm",
            state=CheckState.WARNING,
            text=f"{each.type}/{given.sentence(each, lasts=True)}",
            hint=given.advice(each),
        )
    if not active:
        tuning = given.status.condition(ConditionType.TUNING)
        seen = given.measures and tuning is not None and tuning.reason not in AS_ASKED
        text = "none is active" if seen else "nothing is measured that could raise one"
        state = CheckState.OK if seen else CheckState.UNKNOWN
        yield StatusCheck(subject="alarms", state=state, text=text)


def _traffic(given: _Given) -> StatusCheck:
    measured = given.status.measured
    if not measured.at or measured.tokens_per_second is None:
        return StatusCheck(subject="traffic", state=CheckState.UNKNOWN, text=NOT_MEASURED)
    headroom, tpot = measured.headroom_tokens_per_second, measured.tpot_milliseconds
    before = "" if given.measures else "not known now; last: "
    text = _joined(
        f"{before}{measured.tokens_per_second} tokens per second",
        f"batch {measured.mean_batch}" if measured.mean_batch else "",
        f"acceptance length {measured.acceptance_length}" if measured.acceptance_length else "",
        f"{tpot} ms per output token" if tpot else "",
        "" if headroom is None else f"capacity for at least {headroom} more",
        ago(measured.at, given.now_s),
    )
    state = CheckState.OK if given.measures else CheckState.UNKNOWN
    return StatusCheck(subject="traffic", state=state, text=text)


def _gain(given: _Given) -> Iterator[StatusCheck]:
    gain, gained = given.status.measured.gain_percent, given.status.gained
    text = (
        f"{signed(gain)} % tokens per second, compared with your depth, tokens"
        if gain
        else NOT_MEASURED
    )
    state = CheckState.WARNING if gain.startswith("-") else CheckState.OK
    known = bool(gain) and given.measures
    yield StatusCheck(subject="gain", state=state if known else CheckState.UNKNOWN, text=text)
    if gained is not None:
        state = CheckState.OK if gained.percent else CheckState.UNKNOWN
        yield StatusCheck(subject="gained", state=state, text=gained_in_words(gained))


def _compared(given: _Given) -> Iterator[StatusCheck]:
    """One replica that has something otherwise than the others."""
    found = given.status.comparison
    if found is None:
        return
    known = found.result in {Compared.FASTER, Compared.NO_DIFFERENCE}
    state = CheckState.OK if known else CheckState.UNKNOWN
    if found.result is Compared.SLOWER or found.state is ArmState.FAILED:
        state = CheckState.WARNING
    text = f"{found.result or found.state}: {found.message}"
    yield StatusCheck(subject="compared", state=state, text=text)


def _quality(given: _Given) -> Iterator[StatusCheck]:
    found = given.status.quality
    if found is None:
        return
    states = {QualityResult.LOSSLESS: CheckState.OK, QualityResult.DIFFERS: CheckState.WARNING}
    text = f"{found.result} {ago(found.at, given.now_s)}: {found.message}"
    state = states.get(found.result, CheckState.UNKNOWN)
    yield StatusCheck(subject="quality", state=state, text=text)


def _joined(*parts: str) -> str:
    return ", ".join(part for part in parts if part)
