"""The checks of `fathom status` of a SpeculativeDeployment: a line each. Pure."""

from collections.abc import Iterator
from typing import Final

from fathom.api.conditions import ConditionStatus, ConditionType, Reason
from fathom.api.status import (
    COMPLETE,
    OFFERED,
    ArmState,
    Compared,
    QualityResult,
    SpeculativeDeploymentStatus,
)
from fathom.api.training import TrainingPhase
from fathom.cli.status_checks import (
    CheckState,
    Given,
    StatusCheck,
    alarm_checks,
    depth_check,
    gain_checks,
    joined,
    traffic_check,
    tuning_check,
)
from fathom.health import holds
from fathom.times import ago, lasting
from fathom.training.record import AWAITS_PERSON
from fathom.training.status import cause_and_advice

_Given = Given[SpeculativeDeploymentStatus]
TRAINING: Final = "training"
"""Subject of the line on another draft that is trained."""
_HAS_ITS_LINE: Final = frozenset({Reason.INVALID_SPEC, Reason.WEIGHTS_NOT_FETCHED})
"""Reasons of Degraded that are the subject of another line."""


def deployment_checks(given: _Given) -> Iterator[StatusCheck]:
    """Every check of one that an operator has reported on."""
    yield from _degraded(given)
    yield from _spec(given)
    yield from _draft(given)
    yield from _weights(given)
    yield _replicas(given)
    yield from _rollout(given)
    yield depth_check(
        given,
        followers=given.status.ready_replicas,
        of="ready replicas",
        none="no replica is ready",
    )
    yield from tuning_check(given, f"{given.command('advise')} says which depth to write.")
    yield from alarm_checks(given)
    yield traffic_check(given)
    yield from gain_checks(given)
    yield from _compared(given)
    yield from _training(given)
    yield from _quality(given)
    for each in given.status.left_out:
        yield StatusCheck(subject="not made", state=CheckState.UNKNOWN, text=each)


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
        text = joined(given.status.draft.family, found.reason)
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
    text = joined(f"{status.ready} ready" if status.ready else "not known", version)
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
        hint = f"{given.command('rollout')} begins it."
        yield StatusCheck(subject="upgrade", state=CheckState.UNKNOWN, text=text, hint=hint)
        return
    entered = f"{rollout.stage} {ago(rollout.since, given.now_s)}"
    text = entered if rollout.message in given.cause else joined(entered, rollout.message)
    failed = given.true(ConditionType.DEGRADED) is not None
    state = CheckState.FAILED if failed else CheckState.WARNING
    yield StatusCheck(subject="revision", state=state, text=text)


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


def _training(given: _Given) -> Iterator[StatusCheck]:
    """Another draft that is trained. What serves is well, even where a person is waited for."""
    found = given.status.training
    if found is None:
        return
    cause, advice = cause_and_advice(found.message)
    state = CheckState.OK
    if found.phase in AWAITS_PERSON:
        state = CheckState.WARNING
        advice = advice or f"{given.command('train')} says what it waits for."
    elif found.phase is TrainingPhase.APPROVED:
        state = CheckState.UNKNOWN
    run = f"run {found.run}" if found.run else ""
    text = joined(found.phase, run, lasting(found.since, given.now_s) if found.since else "")
    text = f"{text}: {cause}" if cause else text
    yield StatusCheck(subject=TRAINING, state=state, text=text, hint=advice)


def _quality(given: _Given) -> Iterator[StatusCheck]:
    found = given.status.quality
    if found is None:
        return
    states = {QualityResult.LOSSLESS: CheckState.OK, QualityResult.DIFFERS: CheckState.WARNING}
    text = f"{found.result} {ago(found.at, given.now_s)}: {found.message}"
    state = states.get(found.result, CheckState.UNKNOWN)
    yield StatusCheck(subject="quality", state=state, text=text)
