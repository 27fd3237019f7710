"""Whether a SpeculativeDeployment is well, and what comes next, by what its status says. Pure."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from fathom.api.choices import TuningMode
from fathom.api.conditions import AlarmKind, ConditionStatus, ConditionType, Reason
from fathom.api.status import Condition
from fathom.inspect.cluster import Reported


class Headline(StrEnum):
    """As a headline ends."""

    WELL = "is well"
    ALARMED = "serves, and an alarm stands"
    PAUSED = "is paused"
    UNDER_WAY = "is on its way"
    NOT_WELL = "is not well"
    UNKNOWN = "is not known to be well"


@dataclass(frozen=True, slots=True)
class Wellness:
    headline: Headline
    next: str
    """What happens, or what to do, in sentences."""

    @property
    def is_well(self) -> bool:
        """Whether nobody has to look."""
        return self.headline in {Headline.WELL, Headline.PAUSED}


def wellness_of(reported: Reported) -> Wellness:
    """Judge what a resource's own status says of it.

    Args:
        reported: the resource as it was read.
    """
    found = (judge(reported) for judge in _JUDGES)
    return next(each for each in found if each is not None)


def _not_reported(reported: Reported) -> Wellness | None:
    status, newest = reported.status, reported.metadata.generation
    if status is None or not status.conditions:
        return Wellness(
            Headline.UNKNOWN,
            "No operator has reported on it yet. Does one run, and does it watch this namespace?",
        )
    if status.observed_generation < newest:
        return Wellness(
            Headline.UNKNOWN,
            f"The operator has reported on generation {status.observed_generation} and not yet on "
            f"{newest}, the newest. If that lasts for a minute: does it run?",
        )
    return None


def _degraded(reported: Reported) -> Wellness | None:
    degraded = reported.condition(ConditionType.DEGRADED)
    if degraded is None or not _holds(degraded):
        return None
    again = {Reason.ROLLED_BACK, Reason.WEIGHTS_NOT_FETCHED}
    hint = (
        f" `kubectl fathom retry {reported.metadata.name}` tries it once more."
        if degraded.reason in again
        else ""
    )
    return Wellness(Headline.NOT_WELL, f"{degraded.reason}: {degraded.message}{hint}")


def _progressing(reported: Reported) -> Wellness | None:
    progressing = reported.condition(ConditionType.PROGRESSING)
    if progressing is None:
        return None
    if progressing.reason == Reason.PAUSED:
        resume = f"`kubectl fathom resume {reported.metadata.name}` ends the pause."
        return Wellness(Headline.PAUSED, resume)
    return Wellness(Headline.UNDER_WAY, progressing.message) if _holds(progressing) else None


def _not_ready(reported: Reported) -> Wellness | None:
    ready = reported.condition(ConditionType.READY)
    if ready is not None and (_holds(ready) or ready.reason == Reason.SCALED_TO_ZERO):
        return None
    return Wellness(Headline.NOT_WELL, ready.message if ready else "It says nothing of Ready.")


def _alarmed(reported: Reported) -> Wellness | None:
    found = (reported.condition(kind) for kind in AlarmKind)
    alarms = [each.message for each in found if each is not None and _holds(each)]
    return Wellness(Headline.ALARMED, " ".join(alarms)) if alarms else None


def _well(reported: Reported) -> Wellness:
    tuning = reported.condition(ConditionType.TUNING)
    status, following = reported.status, "Nothing."
    if tuning is not None and not _holds(tuning) and tuning.reason != Reason.STATIC:
        following = tuning.message
    elif status is not None and status.tuning.summary.startswith(f"{TuningMode.ADVISE}/"):
        following = f"`kubectl fathom advise {reported.metadata.name}` says which depth to write."
    return Wellness(Headline.WELL, following)


_JUDGES: Final[tuple[Callable[[Reported], Wellness | None], ...]] = (
    _not_reported,
    _degraded,
    _progressing,
    _not_ready,
    _alarmed,
    _well,
)
"""In this order: the first that answers is the verdict."""


def _holds(condition: Condition) -> bool:
    return condition.status is ConditionStatus.TRUE
