"""All resources at a glance, and what a person should read of each first. Pure."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from fathom.api.conditions import (
    AlarmKind,
    ConditionStatus,
    ConditionType,
    Reason,
    advice_of,
    title_of,
)
from fathom.api.status import (
    COMPLETE,
    Condition,
    MeasuredStatus,
    ReportedStatus,
    SpeculativeDeploymentStatus,
)
from fathom.api.tuner import SpeculationTunerStatus
from fathom.cluster.kinds import SPECULATION_TUNER, Kind, ObjectKey
from fathom.health import (
    AS_ASKED,
    UNKNOWN,
    UNWATCHED_ADVICE,
    Headline,
    Wellness,
    advice_on,
    alarming,
    cause_of,
    holds,
    in_the_way,
    is_measured_now,
    signed,
    unwatched_since,
    wellness_in,
)
from fathom.page.draft_life import lives_in
from fathom.page.history import KEPT_S, comparison_in_words, rollout_in_words
from fathom.page.subject import Fact
from fathom.times import unix_seconds

MOST_ROWS: Final = 1000
"""On one page: what a browser lays out at once, and what a request may cost."""


class Health(StrEnum):
    """A headline in a word; those that a person should read first come first."""

    NOT_WELL = "Not well"
    UNKNOWN = "Unknown"
    ALARMED = "Alarm"
    UNDER_WAY = "Changing"
    PAUSED = "Paused"
    WELL = "Well"


_ORDER: Final[Mapping[Health, int]] = MappingProxyType(
    {each: place for place, each in enumerate(Health)}
)
_WAITING: Final[Mapping[str, Health]] = MappingProxyType(
    {
        Reason.ROLLOUT_BLOCKED: Health.NOT_WELL,
        **dict.fromkeys((Reason.PAUSED, Reason.ROLLOUT_PAUSED, Reason.NO_CAPACITY), Health.PAUSED),
    }
)
"""Reasons of Progressing with which nothing goes on until a person acts."""
_OBSTACLES: Final[Mapping[ConditionStatus, Health]] = MappingProxyType(
    {ConditionStatus.FALSE: Health.NOT_WELL, ConditionStatus.UNKNOWN: Health.UNKNOWN}
)
"""How a SpeculationTuner is that something is in the way of."""
_SAID_ELSEWHERE: Final = AS_ASKED | {Reason.PAUSED, Reason.PODS_NOT_READY}
"""Reasons why nothing is tuned that another condition tells, or the spec."""
TUNERS: Final = "tuners"
_TROUBLED: Final = frozenset({Health.NOT_WELL, Health.UNKNOWN, Health.ALARMED})


def health_in(headline: Headline) -> Health:
    return Health[headline.name]


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """Something that a person should read: whether it holds, since when, why, and what to do."""

    health: Health
    """How a resource is that has nothing else to say."""
    title: str
    """In plain words."""
    code: str
    """By which scripts and documents know it, such as Degraded/PodFailing."""
    cause: str
    advice: str = ""
    """What to do; empty: nothing."""
    since: str = ""
    """When it began, or if it is over, ended; empty: it is not known."""
    over: bool = False


def notices_in(status: ReportedStatus, name: str, now_s: float) -> tuple[Notice, ...]:
    """What a person should read first: the worst first, what is over last.

    Args:
        status: of a resource.
        name: of that resource.
        now_s: Unix seconds.
    """
    since = unwatched_since(status, now_s)
    found = [_unwatched(since)] if since else []
    for each in status.conditions:
        if (health := _health_by(each, status)) is not None:
            advice = advice_on(each, status, name)
            found.append(_notice(each, health, advice))
        elif isinstance(each.type, AlarmKind) and _ended_lately(each, now_s):
            found.append(_notice(each, Health.WELL, over=True))
    return tuple(sorted(found, key=lambda each: _ORDER[each.health]))


def _unwatched(since: str) -> Notice:
    return Notice(
        health=Health.UNKNOWN,
        title="No operator watches it",
        code="Unwatched",
        cause=f"All that is shown is from {since}.",
        advice=UNWATCHED_ADVICE,
        since=since,
    )


def _notice(
    condition: Condition, health: Health, advice: str = "", *, over: bool = False
) -> Notice:
    # False before and after: when it was paused, say, no condition tells.
    paused = condition.type is ConditionType.PROGRESSING and not holds(condition)
    return Notice(
        health=health,
        title=title_of(condition.reason),
        code=f"{condition.type}/{condition.reason}",
        cause=cause_of(condition),
        advice=advice,
        since="" if paused else condition.last_transition_time,
        over=over,
    )


def _health_by(condition: Condition, status: ReportedStatus) -> Health | None:
    """How a resource is by one of its conditions; None: as it should be, or another says why."""
    reason, true = condition.reason, holds(condition)
    attached, obstacle = status.condition(ConditionType.ATTACHED), in_the_way(status)
    health = None
    match condition.type:
        case ConditionType.DEGRADED if true:
            health = Health.NOT_WELL
        case ConditionType.READY if not true and reason != Reason.SCALED_TO_ZERO:
            progressing = status.condition(ConditionType.PROGRESSING)
            explained = any(alarming(status)) or (progressing is not None and holds(progressing))
            health = None if explained else Health.NOT_WELL
        case ConditionType.PROGRESSING if true:
            health = Health.UNDER_WAY
        case ConditionType.PROGRESSING:
            health = _WAITING.get(reason)
        case ConditionType.ATTACHED if not true:
            health = _OBSTACLES[condition.status] if condition is obstacle else Health.PAUSED
        case ConditionType.TUNING if condition is obstacle:
            health = _OBSTACLES[condition.status]
        case ConditionType.TUNING if not true and not attached and reason not in _SAID_ELSEWHERE:
            health = Health.ALARMED
        case ConditionType.DRAFT_COMPATIBLE if not true and advice_of(reason):
            health = Health.ALARMED
        case AlarmKind() if true:
            health = Health.ALARMED
    return health


def _ended_lately(condition: Condition, now_s: float) -> bool:
    ended_s = unix_seconds(condition.last_transition_time)
    return ended_s is not None and now_s - ended_s < KEPT_S


@dataclass(frozen=True, slots=True, kw_only=True)
class OverviewRow:
    """One resource. All is as its status has it."""

    namespace: str
    name: str
    path: str
    """The first part of the address of its own page."""
    engines: str
    """How far the engines of a SpeculationTuner can be tuned; empty: it is none."""
    health: Health
    ready: str
    depth: str
    speed: str
    gain: str
    tuning: str
    """What the tuner does, in plain words."""
    tuning_reason: str
    """The same in one word, such as AtBest; empty: it is not known."""
    notices: tuple[Notice, ...]
    cause: str
    """Why it is not known to be well; empty: it is, or the notices say it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """One page of the list."""

    rows: tuple[OverviewRow, ...]
    number: int
    """Number of this page, from 1."""
    pages: int
    resources: int
    tuners: int
    """How many of them are SpeculationTuners."""
    counts: tuple[tuple[Health, int], ...]
    """Resources of each health that there is, on all pages."""

    @property
    def troubled(self) -> int:
        """Resources that a person should read of; they come first."""
        return sum(count for health, count in self.counts if health in _TROUBLED)


def pages_of(resources: int) -> int:
    """Pages that the list has, of so many resources."""
    return max(1, -(-resources // MOST_ROWS))


def overview_of(
    found: Iterable[tuple[ObjectKey, ReportedStatus]], now_s: float, number: int = 1
) -> Overview:
    """The list, by health, then by namespace and name.

    Args:
        found: all resources.
        now_s: Unix seconds.
        number: the page of it, from 1; one beyond the last is the last.
    """
    listed = [
        (key, status, wellness_in(status, name=key.name, newest=0, now_s=now_s))
        for key, status in found
    ]
    listed.sort(key=lambda each: (_ORDER[health_in(each[2].headline)], each[0]))
    counts = Counter(health_in(each[2].headline) for each in listed)
    pages = pages_of(len(listed))
    number = max(1, min(number, pages))
    part = listed[(number - 1) * MOST_ROWS : number * MOST_ROWS]
    return Overview(
        rows=tuple(_row(key, status, wellness, now_s) for key, status, wellness in part),
        number=number,
        pages=pages,
        resources=len(listed),
        tuners=sum(key.kind == SPECULATION_TUNER for key, _, _ in listed),
        counts=tuple((each, counts[each]) for each in Health if counts[each]),
    )


def _row(key: ObjectKey, status: ReportedStatus, wellness: Wellness, now_s: float) -> OverviewRow:
    measured = status.measured if is_measured_now(status, now_s) else MeasuredStatus()
    notices = (*notices_in(status, key.name, now_s), *_waiting(status))
    reason = status.tuning.summary.partition("/")[2]
    return OverviewRow(
        namespace=key.namespace,
        name=key.name,
        path=path_of(key.kind),
        engines=_engines(status),
        health=health_in(wellness.headline),
        ready=status.of_all or UNKNOWN,
        depth=status.depth.summary or UNKNOWN,
        speed=thousands(measured.tokens_per_second),
        gain=f"{signed(measured.gain_percent)} %" if measured.gain_percent else UNKNOWN,
        tuning=title_of(reason) or UNKNOWN,
        tuning_reason=reason,
        notices=notices,
        cause="" if notices else wellness.cause,
    )


def _waiting(status: ReportedStatus) -> Iterator[Notice]:
    """Trainings that wait for a person; what serves is well meanwhile."""
    for each in lives_in(status):
        if each.waits:
            yield Notice(
                health=Health.PAUSED,
                title=each.title,
                code=each.code,
                cause=each.cause,
                advice=each.advice,
                since=each.since,
            )


def path_of(kind: Kind) -> str:
    """The first part of the address of a page: two kinds may have one name."""
    return TUNERS if kind == SPECULATION_TUNER else "resources"


def _engines(status: ReportedStatus) -> str:
    if not isinstance(status, SpeculationTunerStatus):
        return ""
    return f"tuner, level {status.level}" if status.level else "tuner, level not known"


def thousands(number: int | None) -> str:
    """A count as people read it; a dash: it is not known."""
    return UNKNOWN if number is None else f"{number:,}"


def warnings_in(status: ReportedStatus) -> Iterator[Notice]:
    """What the spec is warned of: each begins with its field, and says what to do."""
    for each in status.warnings if isinstance(status, SpeculativeDeploymentStatus) else ():
        yield Notice(health=Health.PAUSED, title="A warning", code="SpecWarned", cause=each)


def under_way(status: ReportedStatus) -> Iterator[Fact]:
    """What is not over; the rest is among the moments."""
    if not isinstance(status, SpeculativeDeploymentStatus):
        return
    rollout, compared = status.rollout, status.comparison
    if rollout is not None and rollout.stage not in {COMPLETE, "RolledBack", ""}:
        name = f"Rollout to {rollout.revision}: {rollout.stage}"
        yield Fact(name, rollout_in_words(rollout) or rollout.reason, rollout.since)
    # Another draft has a part of its own: its life.
    if compared is not None and compared is not status.draft_trial and not compared.since:
        what = "Adaptive verification" if status.adaptive_verification else "No drafts"
        name = f"{what} on {compared.pod or 'one replica'}: {compared.state}"
        yield Fact(name, comparison_in_words(compared) or compared.reason)
