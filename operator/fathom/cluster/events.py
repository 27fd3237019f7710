"""Events: what `kubectl describe` shows of what was done and why."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from pydantic import JsonValue

from fathom.api import names
from fathom.api.conditions import AlarmKind, ConditionStatus, ConditionType, Reason
from fathom.api.status import Condition, ReportedStatus, SpeculativeDeploymentStatus
from fathom.cluster.kinds import Kind
from fathom.cluster.manifest import Manifest, Meta
from fathom.text import counted, scrubbed, shortened
from fathom.times import is_over, rfc3339

LONGEST_MESSAGE: Final = 1024
"""The API server refuses longer ones."""


_ABNORMAL: Final = frozenset({ConditionType.DEGRADED, *AlarmKind})
"""Conditions that are bad when true."""
_WAITS: Final = frozenset({Reason.STARTING, Reason.FETCHING_WEIGHTS, Reason.WAITING_FOR_HUB})
"""Reasons of Progressing that a new resource goes through."""
HOUR_S: Final = 3600.0
AN_HOUR: Final = 20
"""Events of one reason: a tuner that moves every three minutes is told in full."""


class EventReason(StrEnum):
    """Reasons of events that no condition has; the others have their condition's, or an alarm's.

    Moves and probes have `Depth` and the tuner's action, such as `DepthMove`.
    """

    # Rollouts
    ROLLING = "Rolling"
    CANARY = "Canary"
    TAKES_REPLICA = "TakesReplica"
    PROMOTED = "Promoted"
    ROLLED_OUT = "RolledOut"
    REVERTED = "Reverted"
    SUPERSEDED = "Superseded"
    COMPARED = "Compared"
    REFRESHING = "Refreshing"
    # Another draft
    TRAINING_PROPOSED = "TrainingProposed"
    TRAINING_STARTED = "TrainingStarted"
    TRAINING_ENDED = "TrainingEnded"
    TRAINING_FAILED = "TrainingFailed"
    TRAINING_DISMISSED = "TrainingDismissed"
    DRAFT_REFUSED = "DraftRefused"
    DRAFT_TAKEN_IN = "DraftTakenIn"
    DRAFT_FASTER = "DraftFaster"
    DRAFT_ADOPTED = "DraftAdopted"
    # What was asked for besides
    BENCH_ENDED = "BenchEnded"
    QUALITY_CHECKED = "QualityChecked"
    WEIGHTS_FETCHED = "WeightsFetched"
    PIN_IGNORED = "PinIgnored"
    SPEC_WARNED = "SpecWarned"
    RESUMED = "Resumed"
    # Something is wrong, or no longer
    RECOVERED = "Recovered"
    STATE_RESET = "StateReset"
    STALE_READ = "StaleRead"
    STATUS_REFUSED = "StatusRefused"
    INTERNAL_ERROR = "InternalError"


class Severity(StrEnum):
    NORMAL = "Normal"
    WARNING = "Warning"


@dataclass(frozen=True, slots=True)
class Event:
    """Something that people should hear of, once."""

    severity: Severity
    reason: str
    """An `EventReason`, a condition's `Reason`, or made of an alarm or of what the tuner does."""
    message: str

    def without(self, secrets: Collection[str]) -> "Event":
        """The same, with no secret in its message."""
        return replace(self, message=scrubbed(self.message, secrets))


def transitions(new: ReportedStatus, old: ReportedStatus | None) -> tuple[Event, ...]:
    """One event for each condition that became another, in words.

    Tuning is not among them: its notable decisions have events of their own. Of Progressing only
    waits are, and what a person did: rollouts have events of their own, too.
    """
    before = {each.type: each for each in old.conditions} if old else {}
    found = [
        _event(each)
        for each in new.conditions
        if each.type in {ConditionType.READY, *_ABNORMAL} and _news(each, before.get(each.type))
    ]
    if not _all_ready(new):
        # That all replicas are ready is an event of its own, once they are.
        found = [each for each in found if each.reason != EventReason.RECOVERED]
    progressing = before.get(ConditionType.PROGRESSING)
    return (*found, *_pause(new, progressing), *_waits(new, progressing), *_warned(new, old))


def _all_ready(status: ReportedStatus) -> bool:
    ready = status.condition(ConditionType.READY)
    return ready is None or (
        ready.status is ConditionStatus.TRUE or ready.reason == Reason.SCALED_TO_ZERO
    )


def _waits(new: ReportedStatus, old: Condition | None) -> tuple[Event, ...]:
    """What a resource that serves nobody yet waits for, each time that this becomes another."""
    now = new.condition(ConditionType.PROGRESSING)
    if now is None or now.reason not in _WAITS or (old is not None and old.reason == now.reason):
        return ()
    return (Event(Severity.NORMAL, now.reason, now.message),)


def _warned(new: ReportedStatus, old: ReportedStatus | None) -> tuple[Event, ...]:
    """What a newer generation of the spec is warned of.

    Warnings alone do not tell what is new: an older CRD keeps none.
    """
    if not isinstance(new, SpeculativeDeploymentStatus):
        return ()
    before = old if isinstance(old, SpeculativeDeploymentStatus) else None
    generation, warnings = (before.observed_generation, before.warnings) if before else (0, ())
    if new.observed_generation == generation or new.warnings in ((), warnings):
        return ()
    return (Event(Severity.WARNING, EventReason.SPEC_WARNED, " ".join(new.warnings)),)


def _pause(new: ReportedStatus, old: Condition | None) -> tuple[Event, ...]:
    """That a person has paused it, or ended that."""
    now = new.condition(ConditionType.PROGRESSING)
    is_paused, was_paused = (
        each is not None and each.reason == Reason.PAUSED for each in (now, old)
    )
    if is_paused == was_paused or now is None:
        return ()
    if is_paused:
        return (Event(Severity.NORMAL, Reason.PAUSED, now.message),)
    return (Event(Severity.NORMAL, EventReason.RESUMED, f"the pause is over: {now.message}"),)


def _news(new: Condition, old: Condition | None) -> bool:
    if old is None:
        # A first look that finds nothing wrong and nothing ready is no news.
        return new.status is ConditionStatus.TRUE
    if new.type in _ABNORMAL and new.status is ConditionStatus.TRUE:
        return (new.status, new.reason) != (old.status, old.reason)
    return new.status is not old.status


def _event(condition: Condition) -> Event:
    good = condition.type not in _ABNORMAL
    well = (condition.status is ConditionStatus.TRUE) is good
    if condition.type is ConditionType.DEGRADED and well:
        return Event(Severity.NORMAL, EventReason.RECOVERED, "everything is as expected again.")
    if isinstance(condition.type, AlarmKind):
        name = f"{condition.type}{'Over' if well else ''}"
        severity = Severity.NORMAL if well else Severity.WARNING
        return Event(severity, name, condition.message)
    return Event(Severity.NORMAL if well else Severity.WARNING, condition.reason, condition.message)


def event_manifest(
    event: Event, kind: Kind, about: Meta, *, now_s: float, reporter: str
) -> Manifest:
    """The Event object. Its name is the server's choice: two of a kind may fall into one second.

    Args:
        event: what it says.
        kind: of the resource.
        about: the resource.
        now_s: Unix seconds.
        reporter: who reports, such as the operator's pod.
    """
    at = rfc3339(now_s)
    involved: dict[str, JsonValue] = {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "name": about.name,
        "namespace": about.namespace,
        "uid": about.uid,
    }
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"generateName": f"{about.name}.", "namespace": about.namespace},
        "involvedObject": involved,
        "type": event.severity.value,
        "reason": event.reason,
        "message": shortened(event.message, LONGEST_MESSAGE),
        "source": {"component": names.FIELD_MANAGER},
        "reportingComponent": f"{names.GROUP}/operator",
        "reportingInstance": reporter,
        "firstTimestamp": at,
        "lastTimestamp": at,
        "count": 1,
    }


@dataclass(frozen=True, slots=True)
class EventPace:
    """What was posted of each reason lately, and how much was kept back since."""

    posted_at_s: Mapping[str, tuple[float, ...]] = field(
        default_factory=lambda: MappingProxyType({})
    )
    """By reason, Unix seconds, of the last hour."""
    kept_back: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    """By reason, since the last one that was posted."""

    def let_through(
        self, events: Sequence[Event], now_s: float
    ) -> tuple["EventPace", tuple[Event, ...]]:
        """Those that may be posted now; the first after a gap says how many were not.

        Args:
            events: that are to be told.
            now_s: Unix seconds.
        """
        posted = {
            reason: lately
            for reason, times in self.posted_at_s.items()
            if (lately := tuple(each for each in times if not is_over(each, HOUR_S, now_s)))
        }
        kept_back, let = dict(self.kept_back), []
        for event in events:
            before = posted.get(event.reason, ())
            if len(before) >= AN_HOUR:
                kept_back[event.reason] = kept_back.get(event.reason, 0) + 1
                continue
            posted[event.reason] = (*before, now_s)
            more = kept_back.pop(event.reason, 0)
            let.append(_with_count(event, more) if more else event)
        return EventPace(MappingProxyType(posted), MappingProxyType(kept_back)), tuple(let)


def _with_count(event: Event, more: int) -> Event:
    others = counted(more, "more event", "more events")
    message = f"{event.message} ({others} {event.reason} before it: at most {AN_HOUR} an hour.)"
    return replace(event, message=message)
