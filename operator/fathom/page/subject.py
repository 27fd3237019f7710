"""What a page is made of: one resource, or all of them at a glance. Pure."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from fathom.api.problem import Problem
from fathom.api.status import SpeculativeDeploymentStatus
from fathom.cluster.kinds import ObjectKey
from fathom.cluster.manifest import Manifest
from fathom.engine.depth import DepthDocument
from fathom.measurement.bench_result import DepthBench
from fathom.page.history import History
from fathom.resource import (
    UNKNOWN,
    Headline,
    SpeculativeDeployment,
    Wellness,
    alarming,
    known_part,
    parse,
    signed,
    unwatched_in_words,
    unwatched_since,
    wellness_in,
    why_not_live,
)
from fathom.tuning.explanation import Explanation, explain
from fathom.tuning.interface import settings_from
from fathom.tuning.learned_state import TuningState
from fathom.tuning.surface import SurfaceRow, surface

MOST_ROWS: Final = 1000
"""On one page: what a browser lays out at once, and what a request may cost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """One SpeculativeDeployment, as it is known at one moment."""

    key: ObjectKey
    resource: SpeculativeDeployment | tuple[Problem, ...]
    """As its user wrote it; or what is wrong with it."""
    status: SpeculativeDeploymentStatus
    document: DepthDocument | None
    """None: there is none."""
    state: TuningState
    history: History | None
    """None: whoever asks has none."""
    bench: DepthBench | None = None
    """What `fathom bench` found last; None: nothing, or whoever asks does not look."""


def explained(subject: Subject, now_s: float) -> tuple[Explanation, tuple[SurfaceRow, ...]]:
    """Why depth is what it is, and the surface: where it is not live, only what was measured."""
    sd, status = subject.resource, subject.status
    if not isinstance(sd, SpeculativeDeployment):
        # Which fields, its alarm says.
        return Explanation(tokens=0, nothing="Nothing is tuned: the spec is refused."), ()
    speculation = sd.spec.speculation
    if not (sd.spec.tunable and sd.spec.drafts):
        why = f"Nothing is tuned: depth stays at {speculation.tokens}."
        return Explanation(tokens=speculation.tokens, nothing=why), ()
    settings = settings_from(speculation, sd.engine.max_num_seqs, sd.engine.depths)
    live = not why_not_live(sd, status)
    explanation = explain(
        subject.state,
        settings,
        subject.document,
        now_s,
        pods=status.ready_replicas or None,
        live=live,
    )
    if explanation.nothing:
        return explanation, ()
    rows = surface(subject.state, settings, subject.document if live else None, now_s)
    return explanation, rows if live else tuple(map(_measured_only, rows))


def _measured_only(row: SurfaceRow) -> SurfaceRow:
    return replace(
        row,
        speeds=tuple(
            each if each.measured else replace(each, tokens_per_second=None) for each in row.speeds
        ),
    )


def why_fixed(subject: Subject) -> str:
    """Why depth does not change while the engines run; empty: it may, or the spec is refused."""
    sd = subject.resource
    if not isinstance(sd, SpeculativeDeployment):
        return ""
    return why_not_live(sd, subject.status) or ("" if sd.spec.tunable else "nothing is tuned.")


@dataclass(frozen=True, slots=True, kw_only=True)
class PassReport:
    """What one pass over a resource had to say, as it lay there: nothing is copied."""

    uid: str
    manifest: Manifest
    """The resource as it was read."""
    status: SpeculativeDeploymentStatus
    """As it is reported, whether or not the API server takes it."""
    document: DepthDocument | None
    """In force; None: there is none."""
    state: TuningState

    def subject(self, key: ObjectKey, history: History) -> Subject:
        resource = parse(known_part(self.manifest).known)
        return Subject(
            key=key,
            resource=resource,
            status=self.status,
            document=self.document,
            state=self.state,
            history=history,
        )


class ShownResources:
    """The newest of every resource that this operator looks after. Belongs to its event loop."""

    def __init__(self) -> None:
        self._found: dict[ObjectKey, tuple[PassReport, History]] = {}

    def __len__(self) -> int:
        return len(self._found)

    def __contains__(self, key: ObjectKey) -> bool:
        return key in self._found

    def saw(self, key: ObjectKey, reported: PassReport, now_s: float) -> None:
        """Take in one pass (Unix seconds); another resource of the same name begins again."""
        before, history = self._found.get(key, (None, None))
        if history is None or before is None or before.uid != reported.uid:
            history = History(now_s)
        history.saw(reported.status, now_s)
        self._found[key] = reported, history

    def forget(self, key: ObjectKey) -> None:
        """Drop a resource that is gone."""
        self._found.pop(key, None)

    def statuses(self) -> Iterator[tuple[ObjectKey, SpeculativeDeploymentStatus]]:
        """Status of each resource."""
        return ((key, reported.status) for key, (reported, _) in self._found.items())

    def subject(self, key: ObjectKey) -> Subject:
        """One resource that is in it."""
        reported, history = self._found[key]
        return reported.subject(key, history)


@dataclass(frozen=True, slots=True)
class Fact:
    """A name and what is known of it."""

    name: str
    value: str
    note: str = ""
    """Since when, over what, or in which unit; empty: the name says it all."""


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
_TROUBLED: Final = frozenset({Health.NOT_WELL, Health.UNKNOWN, Health.ALARMED})


def health_in(headline: Headline) -> Health:
    return Health[headline.name]


def alarms_in(status: SpeculativeDeploymentStatus, now_s: float) -> tuple[Fact, ...]:
    """What a person should read first: that no operator watches, alarms, and Degraded.

    Args:
        status: of a resource.
        now_s: Unix seconds.
    """
    since = unwatched_since(status, now_s)
    unwatched = (Fact("Unwatched", unwatched_in_words(since), since),) if since else ()
    active = (
        Fact(f"{each.type}/{each.reason}", each.message, each.last_transition_time)
        for each in alarming(status)
    )
    return (*unwatched, *active)


def cause_beside(alarms: Iterable[Fact], wellness: Wellness) -> str:
    """The cause of a headline, unless one of the alarms says the same."""
    said = any(each.value in wellness.cause for each in alarms)
    return "" if said else wellness.cause


@dataclass(frozen=True, slots=True, kw_only=True)
class OverviewRow:
    """One resource. All is as its status has it."""

    namespace: str
    name: str
    health: Health
    ready: str
    depth: str
    speed: str
    gain: str
    tuning: str
    alarms: tuple[Fact, ...]
    cause: str
    """Why it is not well, or what happens; empty: nothing does, or the alarms say it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """One page of the list."""

    rows: tuple[OverviewRow, ...]
    number: int
    """Number of this page, from 1."""
    pages: int
    resources: int
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
    found: Iterable[tuple[ObjectKey, SpeculativeDeploymentStatus]], now_s: float, number: int = 1
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
        counts=tuple((each, counts[each]) for each in Health if counts[each]),
    )


def _row(
    key: ObjectKey, status: SpeculativeDeploymentStatus, wellness: Wellness, now_s: float
) -> OverviewRow:
    measured, alarms = status.measured, alarms_in(status, now_s)
    return OverviewRow(
        namespace=key.namespace,
        name=key.name,
        health=health_in(wellness.headline),
        ready=status.ready or UNKNOWN,
        depth=status.depth.summary or UNKNOWN,
        speed=thousands(measured.tokens_per_second) if measured.at else UNKNOWN,
        gain=f"{signed(measured.gain_percent)} %" if measured.gain_percent else UNKNOWN,
        tuning=status.tuning.summary or UNKNOWN,
        alarms=alarms,
        cause=cause_beside(alarms, wellness),
    )


def thousands(number: int | None) -> str:
    """A count as people read it; a dash: it is not known."""
    return UNKNOWN if number is None else f"{number:,}"
