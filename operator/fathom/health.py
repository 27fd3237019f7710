"""What a status says of its resource, of either kind. Pure."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from fathom import __version__
from fathom.api.choices import TuningMode
from fathom.api.conditions import AlarmKind, ConditionStatus, ConditionType, Reason, advice_of
from fathom.api.spec import LONGEST_WINDOW_S
from fathom.api.status import Condition, GainedStatus, ReportedStatus
from fathom.api.tuner import EnginesStatus, SpeculationTunerStatus
from fathom.times import unix_seconds

UNKNOWN: Final = "–"
"""In a table: it is not zero."""
NOT_MEASURED: Final = "not measured"
UNWATCHED_S: Final = 1500.0
"""Age of a status that nobody keeps: an operator writes to it every ten minutes."""
UNWATCHED_ADVICE: Final = "Check that an operator runs, and that it watches this namespace."
UNREPORTED: Final = f"No operator has reported on it yet. {UNWATCHED_ADVICE}"
UNREADABLE: Final = (
    f"This fathom ({__version__}) cannot read its status: another release wrote it. Use the fathom "
    "of the operator's release, which `fathom version` shows."
)

LATE_S: Final = 90.0
"""What a window may be late by: a status is written once a minute."""
_MEASURES_NOTHING: Final = frozenset(
    {
        *(Reason.NO_TRAFFIC, Reason.PODS_NOT_READY),
        *(Reason.NO_METRICS, Reason.METRICS_REFUSED, Reason.STALE_METRICS),
    }
)
"""Reasons of Tuning with which nothing is known of the present."""
AS_ASKED: Final = frozenset({Reason.STATIC, Reason.DRAFTING_DISABLED})
"""Reasons why nothing is tuned that are what the spec asks for."""
_NOTHING_WRITTEN: Final = frozenset({Reason.INVALID_SPEC, Reason.NAME_TAKEN, Reason.CHILD_REFUSED})
"""Reasons of Attached with which a tuner does not do its work, whatever its engines can."""


def unwatched_since(status: ReportedStatus, now_s: float) -> str:
    """When an operator last looked after it, if that is long ago; empty: one does.

    Also empty where its operator is too old to say.
    """
    last = status.last_reconcile_time or ""
    at_s = unix_seconds(last)
    return last if at_s is not None and now_s - at_s > UNWATCHED_S else ""


def unwatched_in_words(since: str) -> str:
    """That nobody watches, and what to do."""
    return (
        f"No operator has watched it since {since}, by the clock here, and all that is shown is "
        f"from then. {UNWATCHED_ADVICE}"
    )


def unseen_in_words(status: ReportedStatus, newest: int) -> str:
    """That an edit is not in a status; empty: it is of the newest generation."""
    observed = status.observed_generation
    if observed >= newest:
        return ""
    return (
        f"The operator has reported on generation {observed} and not yet on {newest}, the newest."
    )


def holds(condition: Condition) -> bool:
    """Whether it is True."""
    return condition.status is ConditionStatus.TRUE


def cause_of(condition: Condition) -> str:
    """Its message without what to do, which `advice_of` says."""
    advice = advice_of(condition.reason)
    return condition.message.replace(f" {advice}", "") if advice else condition.message


def in_words(condition: Condition, name: str) -> str:
    """Its cause, then what a person does about it."""
    return f"{cause_of(condition)} {advice_of(condition.reason, name)}".strip()


def advice_on(condition: Condition, status: ReportedStatus, name: str) -> str:
    """What a person does about a condition of this status; empty: nothing.

    Nobody waits for what is under way while something is wrong.
    """
    degraded = status.condition(ConditionType.DEGRADED)
    waits = condition.type is ConditionType.PROGRESSING and holds(condition)
    vain = waits and degraded is not None and holds(degraded)
    return "" if vain else advice_of(condition.reason, name)


def is_measured_now(status: ReportedStatus, now_s: float) -> bool:
    """Whether what was measured last is of now (Unix seconds); else nobody shows it as such."""
    tuning, ready = (status.condition(each) for each in (ConditionType.TUNING, ConditionType.READY))
    blind = tuning is not None and tuning.reason in _MEASURES_NOTHING
    idle = ready is not None and ready.reason == Reason.SCALED_TO_ZERO
    unread = isinstance(status, SpeculationTunerStatus) and status.level is None
    ended_s = unix_seconds(status.measured.at)
    if ended_s is None or blind or idle or unread:
        return False
    # How long the next one takes is not known: the last may have been one of a probe.
    return now_s - ended_s <= LONGEST_WINDOW_S + LATE_S


def standing(status: ReportedStatus, now_s: float) -> tuple[str, ...]:
    """What somebody should look at: that nobody watches, and conditions as `Degraded/PodFailing`.

    Args:
        status: of a resource.
        now_s: Unix seconds.
    """
    since = unwatched_since(status, now_s)
    unwatched = (f"Unwatched since {since}",) if since else ()
    return (*unwatched, *(f"{each.type}/{each.reason}" for each in alarming(status)))


def alarming(status: ReportedStatus) -> Iterator[Condition]:
    """Conditions that somebody should look at: active alarms, Degraded, an obstacle."""
    obstacle = in_the_way(status)
    for each in status.conditions:
        alarm = each.type is ConditionType.DEGRADED or isinstance(each.type, AlarmKind)
        if each is obstacle or (alarm and holds(each)):
            yield each


def in_the_way(status: ReportedStatus) -> Condition | None:
    """What keeps a SpeculationTuner from what its spec asks for; None: nothing, or it is none.

    Engines whose depth cannot be changed are what mode Advise was made for, too.
    """
    attached, tuning = map(status.condition, (ConditionType.ATTACHED, ConditionType.TUNING))
    if attached is None or not isinstance(status, SpeculationTunerStatus):
        return None
    acts = status.tuning.summary.startswith(f"{TuningMode.AUTO}/")
    if not holds(attached) and (
        acts or status.level is None or attached.reason in _NOTHING_WRITTEN
    ):
        return attached
    if tuning is None or holds(tuning) or tuning.reason in {attached.reason, *AS_ASKED}:
        return None
    return tuning


def gained_in_words(gained: GainedStatus) -> str:
    """What following the traffic brought and, of GPUs, over which hours that is known."""
    share = f"{signed(gained.percent)} % ± {gained.error_percent}"
    if not gained.measured_gpu_hours:
        return f"{share if gained.percent else NOT_MEASURED} since {gained.since}"
    hours = (
        f"{gained.measured_gpu_hours} busy GPU hours measured, {gained.unmeasured_gpu_hours} not"
    )
    if not gained.percent:
        return f"{NOT_MEASURED} since {gained.since} ({hours})"
    return (
        f"{share}, {signed(gained.gpu_hours)} ± {gained.error_gpu_hours} GPU hours since "
        f"{gained.since} ({hours})"
    )


def engine_in_words(engines: EnginesStatus) -> str:
    """What these engines say that they are; empty: nothing."""
    found = (
        f"vLLM {engines.version}" if engines.version else "",
        f"Model Runner {engines.runner}" if engines.runner else "",
        f"depths {engines.depths.replace(',', ', ')}" if engines.depths else "",
    )
    return ", ".join(filter(None, found))


def signed(number: str) -> str:
    """A number of the status with its sign, as it stands there."""
    return number if number.startswith("-") else f"+{number}"


class Headline(StrEnum):
    """As a headline ends."""

    WELL = "is well"
    ALARMED = "serves, and an alarm is active"
    PAUSED = "is paused"
    UNDER_WAY = "is changing"
    NOT_WELL = "is not well"
    UNKNOWN = "is not known to be well"


@dataclass(frozen=True, slots=True)
class Wellness:
    headline: Headline
    cause: str = ""
    """What happens, or what to do, in sentences; empty: nothing."""

    @property
    def is_well(self) -> bool:
        """Whether no person has to act."""
        return self.headline in {Headline.WELL, Headline.PAUSED}


def wellness_in(status: ReportedStatus | None, *, name: str, newest: int, now_s: float) -> Wellness:
    """Judge what a status says of its resource.

    Args:
        status: None: there is none.
        name: of the resource.
        newest: generation of the resource.
        now_s: Unix seconds.
    """
    if status is not None and (since := unwatched_since(status, now_s)):
        return Wellness(Headline.UNKNOWN, unwatched_in_words(since))
    if status is None or not status.conditions:
        return Wellness(Headline.UNKNOWN, UNREPORTED)
    if unseen := unseen_in_words(status, newest):
        return Wellness(Headline.UNKNOWN, f"{unseen} If that lasts for a minute: does it run?")
    found = (judge(status, name) for judge in _JUDGES)
    return next((each for each in found if each is not None), Wellness(Headline.WELL))


def _obstructed(status: ReportedStatus, name: str) -> Wellness | None:
    found = in_the_way(status)
    if found is None:
        return None
    unknown = found.status is ConditionStatus.UNKNOWN
    headline = Headline.UNKNOWN if unknown else Headline.NOT_WELL
    return Wellness(headline, f"{found.reason}: {in_words(found, name)}")


def _degraded(status: ReportedStatus, name: str) -> Wellness | None:
    degraded = status.condition(ConditionType.DEGRADED)
    if degraded is None or not holds(degraded):
        return None
    return Wellness(Headline.NOT_WELL, f"{degraded.reason}: {in_words(degraded, name)}")


def _progressing(status: ReportedStatus, _: str) -> Wellness | None:
    progressing = status.condition(ConditionType.PROGRESSING)
    if progressing is None:
        return None
    if progressing.reason == Reason.ROLLOUT_BLOCKED:
        return Wellness(Headline.NOT_WELL, f"{progressing.reason}: {progressing.message}")
    return Wellness(Headline.UNDER_WAY, progressing.message) if holds(progressing) else None


def _not_ready(status: ReportedStatus, _: str) -> Wellness | None:
    ready = status.condition(ConditionType.READY)
    owns_none = isinstance(status, SpeculationTunerStatus)
    if owns_none or (ready is not None and (holds(ready) or ready.reason == Reason.SCALED_TO_ZERO)):
        return None
    return Wellness(Headline.NOT_WELL, ready.message if ready else "It says nothing of Ready.")


def _alarmed(status: ReportedStatus, name: str) -> Wellness | None:
    found = (status.condition(kind) for kind in AlarmKind)
    alarms = [in_words(each, name) for each in found if each is not None and holds(each)]
    return Wellness(Headline.ALARMED, " ".join(alarms)) if alarms else None


def _paused(status: ReportedStatus, _: str) -> Wellness | None:
    progressing = status.condition(ConditionType.PROGRESSING)
    paused = progressing is not None and progressing.reason == Reason.PAUSED
    return Wellness(Headline.PAUSED) if paused else None


_JUDGES: Final[tuple[Callable[[ReportedStatus, str], Wellness | None], ...]] = (
    _degraded,
    _progressing,
    _not_ready,
    _obstructed,
    _alarmed,
    _paused,
)
"""In this order: the first that answers is the verdict."""
