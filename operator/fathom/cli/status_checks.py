"""The checks of `fathom status`: a line each, by a resource's own status. Pure.

Those of both kinds of resources, and of a SpeculationTuner.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

from fathom.api.choices import TuningMode
from fathom.api.conditions import AlarmKind, ConditionType
from fathom.api.status import Condition, ReportedStatus
from fathom.api.tuner import EnginesStatus, Level, SpeculationTunerStatus
from fathom.attach.status import break_evens_in_words
from fathom.cli.documents import Part
from fathom.health import (
    AS_ASKED,
    NOT_MEASURED,
    advice_on,
    cause_of,
    engine_in_words,
    gained_in_words,
    holds,
    in_the_way,
    is_measured_now,
    signed,
    unwatched_since,
)
from fathom.text import counted
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


_Status = TypeVar("_Status", bound=ReportedStatus)
_Status_co = TypeVar("_Status_co", bound=ReportedStatus, covariant=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Given(Generic[_Status_co]):
    """What every check sees."""

    name: str
    namespace: str
    generation: int
    status: _Status_co
    cause: str
    """The headline's: what it says is not repeated below."""
    now_s: float

    def of(self, status: _Status) -> "Given[_Status]":
        """The same of a status of which the kind is known."""
        return Given(
            name=self.name,
            namespace=self.namespace,
            generation=self.generation,
            status=status,
            cause=self.cause,
            now_s=self.now_s,
        )

    def true(self, kind: ConditionType) -> Condition | None:
        """A condition that is True; None: it is not."""
        found = self.status.condition(kind)
        return found if found is not None and holds(found) else None

    def command(self, verb: str) -> str:
        """What a person runs for this resource."""
        return f"`kubectl fathom {verb} {self.name} -n {self.namespace}`"

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


_Given = Given[ReportedStatus]


def operator_check(given: _Given, *, unreadable: bool) -> StatusCheck:
    """Whether an operator looks after it."""
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


def depth_check(given: _Given, *, followers: int, of: str, none: str) -> StatusCheck:
    """Which depth is in force, and where.

    Args:
        given: the resource.
        followers: pods that should run at it.
        of: what they are called.
        none: that there are none.
    """
    depth = given.status.depth
    if not depth.summary:
        return StatusCheck(subject="depth", state=CheckState.UNKNOWN, text="not known")
    if not depth.generation:
        return StatusCheck(subject="depth", state=CheckState.OK, text=depth.summary)
    applied = f"in force on {depth.applied_replicas} of {followers} {of}"
    since = lasting(depth.since, given.now_s) if depth.since else ""
    state = CheckState.WARNING
    if not followers:
        state, applied = CheckState.UNKNOWN, none
    elif depth.applied_replicas >= followers:
        state = CheckState.OK
    elif not is_over(unix_seconds(depth.since) or 0.0, DEADLINE_S, given.now_s):
        state, applied = CheckState.OK, f"written just now, {applied} by the last report"
    shown = joined(depth.summary, applied, since)
    return StatusCheck(subject="depth", state=state, text=shown)


def tuning_check(given: _Given, advised: str) -> Iterator[StatusCheck]:
    """What the tuner does.

    Args:
        given: the resource.
        advised: what to do with what mode Advise says; empty: nothing.
    """
    found, summary = given.status.condition(ConditionType.TUNING), given.status.tuning.summary
    if found is None:
        return
    fine = holds(found) or found.reason in AS_ASKED
    text = given.sentence(found)
    text = f"{summary}{text.removeprefix(found.reason)}" if summary else text
    hint = given.advice(found)
    if summary.startswith(f"{TuningMode.ADVISE}/"):
        hint = advised or hint
    state = CheckState.OK if fine else CheckState.WARNING
    yield StatusCheck(subject="tuning", state=state, text=text, hint=hint)


def alarm_checks(given: _Given) -> Iterator[StatusCheck]:
    """What a person should look at."""
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


def traffic_check(given: _Given) -> StatusCheck:
    """What the last window measured, and whether that is of now."""
    measured = given.status.measured
    if not measured.at or measured.tokens_per_second is None:
        return StatusCheck(subject="traffic", state=CheckState.UNKNOWN, text=NOT_MEASURED)
    headroom, tpot = measured.headroom_tokens_per_second, measured.tpot_milliseconds
    before = "" if given.measures else "not known now; last: "
    text = joined(
        f"{before}{measured.tokens_per_second} tokens per second",
        f"batch {measured.mean_batch}" if measured.mean_batch else "",
        f"acceptance length {measured.acceptance_length}" if measured.acceptance_length else "",
        f"{tpot} ms per output token" if tpot else "",
        "" if headroom is None else f"capacity for at least {headroom} more",
        ago(measured.at, given.now_s),
    )
    state = CheckState.OK if given.measures else CheckState.UNKNOWN
    return StatusCheck(subject="traffic", state=state, text=text)


def gain_checks(given: _Given) -> Iterator[StatusCheck]:
    """What following the traffic brings, and brought."""
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


def joined(*parts: str) -> str:
    """The parts that are not empty."""
    return ", ".join(part for part in parts if part)


def tuner_checks(given: Given[SpeculationTunerStatus]) -> Iterator[StatusCheck]:
    """Every check of a SpeculationTuner that an operator has reported on."""
    status = given.status
    yield from _attached(given)
    yield _pods(status)
    yield depth_check(
        given, followers=status.tuned_pods, of="tuned pods", none="no pod can be judged by"
    )
    yield from _tuner(given)
    yield from alarm_checks(given)
    yield traffic_check(given)
    if status.break_even:
        survival = tuple(map(float, status.measured.survival))
        yield StatusCheck(
            subject="break-even",
            state=CheckState.OK if given.measures else CheckState.UNKNOWN,
            text=break_evens_in_words(survival, status.break_even),
        )
    if status.level is not Level.METRICS:
        yield from gain_checks(given)


def _attached(given: Given[SpeculationTunerStatus]) -> Iterator[StatusCheck]:
    found = given.status.condition(ConditionType.ATTACHED)
    if found is None:
        return
    state = CheckState.OK if holds(found) else CheckState.WARNING
    if in_the_way(given.status) is found:
        state = CheckState.FAILED
    text, hint = given.sentence(found), given.advice(found)
    yield StatusCheck(subject="attached", state=state, text=text, hint=hint)


def _pods(status: SpeculationTunerStatus) -> StatusCheck:
    whole = status.readable_pods == status.pods > 0
    level = f"level {status.level}" if status.level else "level not known"
    of_all = f"{status.readable} readable" if status.readable else "not known"
    kinds = [kind_in_words(each) for each in status.engines]
    text = joined(of_all, level) if len(kinds) <= 1 else f"{of_all}: {'; '.join(kinds)}"
    if len(kinds) == 1:
        text = joined(text, engine_in_words(status.engines[0]))
    return StatusCheck(
        subject="pods", state=CheckState.OK if whole else CheckState.WARNING, text=text
    )


def kind_in_words(engines: EnginesStatus) -> str:
    """Pods whose engines are alike, and what can be done with them."""
    level = engines.level or "not readable"
    reason = engines.reason if engines.level is not Level.LIVE else ""
    return joined(f"{counted(engines.pods, 'pod')} {level}", reason, engine_in_words(engines))


def _tuner(given: Given[SpeculationTunerStatus]) -> Iterator[StatusCheck]:
    tuning, attached = map(given.status.condition, (ConditionType.TUNING, ConditionType.ATTACHED))
    if tuning is None:
        return
    if attached is None or holds(attached) or tuning.reason != attached.reason:
        live = given.status.level is Level.LIVE
        advised = "`tuning: {mode: Auto}` in its spec lets it act." if live else ""
        yield from tuning_check(given, advised)
        return
    # What is missing first is the subject of another line.
    text = given.status.tuning.summary or tuning.reason
    yield StatusCheck(subject="tuning", state=CheckState.UNKNOWN, text=f"{text}: see attached")
