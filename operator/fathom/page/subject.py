"""What a page is made of: one resource, or all of them at a glance. Pure."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from fathom.api.problem import Problem
from fathom.api.status import SpeculativeDeploymentStatus
from fathom.cluster.kinds import ObjectKey
from fathom.cluster.manifest import Manifest
from fathom.engine.depth import DepthDocument
from fathom.measurement.bench_result import DepthBench
from fathom.page.history import History
from fathom.resource import UNKNOWN, SpeculativeDeployment, known_part, parse, standing
from fathom.tuning.learned_state import TuningState

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


@dataclass(frozen=True, slots=True, kw_only=True)
class OverviewRow:
    """One resource. All is as its status has it."""

    namespace: str
    name: str
    ready: str
    reason: str
    depth: str
    speed: str
    gain: str
    tuning: str
    alarms: tuple[str, ...]
    """What somebody should look at: active alarms, Degraded, and that nobody watches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """One page of the list."""

    rows: tuple[OverviewRow, ...]
    number: int
    """Number of this page, from 1."""
    pages: int
    resources: int
    troubled: int
    """Resources that somebody should look at; they come first."""


def pages_of(resources: int) -> int:
    """Pages that the list has, of so many resources."""
    return max(1, -(-resources // MOST_ROWS))


def overview_of(
    found: Iterable[tuple[ObjectKey, SpeculativeDeploymentStatus]], now_s: float, number: int = 1
) -> Overview:
    """The list, what needs a look first, then by namespace and name.

    Args:
        found: all resources.
        now_s: Unix seconds.
        number: the page of it, from 1; one beyond the last is the last.
    """
    listed = [(standing(status, now_s), key, status) for key, status in found]
    listed.sort(key=lambda each: (not each[0], each[1]))
    pages = pages_of(len(listed))
    number = max(1, min(number, pages))
    part = listed[(number - 1) * MOST_ROWS : number * MOST_ROWS]
    return Overview(
        rows=tuple(_row(key, status, alarms) for alarms, key, status in part),
        number=number,
        pages=pages,
        resources=len(listed),
        troubled=sum(bool(alarms) for alarms, _, _ in listed),
    )


def _row(
    key: ObjectKey, status: SpeculativeDeploymentStatus, alarms: tuple[str, ...]
) -> OverviewRow:
    measured = status.measured
    return OverviewRow(
        namespace=key.namespace,
        name=key.name,
        ready=status.ready or UNKNOWN,
        reason=status.reason or UNKNOWN,
        depth=status.depth.summary or UNKNOWN,
        speed=str(measured.tokens_per_second) if measured.at else UNKNOWN,
        gain=f"{measured.gain_percent} %" if measured.gain_percent else UNKNOWN,
        tuning=status.tuning.summary or UNKNOWN,
        alarms=alarms,
    )
