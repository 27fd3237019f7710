"""What was measured of one size, and what follows from it. Pure."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from math import ceil
from typing import Final, Self, TypeVar

from pydantic import BaseModel, ConfigDict

from benchmarks.scale.memory import MemoryLook
from benchmarks.scale.takeover import Takeover
from local_cluster.control_plane.audit import AuditEvent

_LEASES: Final = "leases"
_WATCH: Final = "watch"
_KIB: Final = 1024
_WINDOW_S: Final = 30.0
"""Window of the tuner, by default."""


class _Measured(BaseModel):
    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)


def percentile(values: Sequence[float], share: float) -> float:
    """By nearest rank: a value that occurred, such that this share of them is no larger.

    Raises:
        ValueError: there are none.
    """
    if not values:
        raise ValueError("no values, so no percentile")
    return sorted(values)[max(0, ceil(share * len(values)) - 1)]


class Percentiles(_Measured):
    """Percentiles of several values of one thing."""

    count: int
    p50: float
    p99: float
    most: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Self | None:
        """None: there are none."""
        if not values:
            return None
        return cls(
            count=len(values),
            p50=percentile(values, 0.5),
            p99=percentile(values, 0.99),
            most=max(values),
        )


@dataclass(frozen=True, slots=True)
class Reading:
    """Everything that grows, at one moment."""

    at_s: float
    """Unix seconds."""
    operator_s: float
    """Processor seconds of the operator: user and system."""
    waited_s: float
    """For which its main thread was ready to run, and had no processor."""
    api_server_s: float
    etcd_s: float
    bench_s: float
    """Processor seconds of this benchmark's process, which plays the cluster and all engines."""
    machine_s: float
    """Seconds of all processors, idle time left out."""
    passes: int
    failures: int
    """Passes that were not finished."""
    decisions: Counter[str]
    """Decisions of the tuner, by action."""
    pages: int
    """That the engines have shown."""
    restarts: int
    """How often the operator had ended by itself."""

    @property
    def at(self) -> datetime:
        return datetime.fromtimestamp(self.at_s, UTC)


class WindowLoad(_Measured):
    """What a window of time took. Cores are processor seconds per second."""

    seconds: float
    operator_cores: float
    waited_cores: float
    """For which the operator was ready to run, and others had the processors."""
    rss_mib: float
    """The most that was seen."""
    passes_per_minute: float
    failed_passes: int
    restarts: int
    """How often the operator ended by itself, as when it cannot renew its lease in time."""
    cpu_ms_per_pass: float | None
    """All of the operator's processor time in the window, over its passes."""
    reads_per_minute: float
    """Reads of the operator at the API server; watches and the lease left out."""
    reads_by_kind: dict[str, int]
    """In the window."""
    writes_per_minute: float
    """The lease left out."""
    writes_by_kind: dict[str, int]
    received_kib_per_minute: float | None
    """From the API server: answers and watches. None: `ss` is not there to tell."""
    pages_per_second: float
    decisions: dict[str, int]
    """Decisions of the tuner in the window, by action."""
    api_server_cores: float
    api_server_mib: float
    """Resident memory of the API server, the most that was seen."""
    etcd_cores: float
    bench_cores: float
    machine_cores: float

    @property
    def decisions_per_minute(self) -> float:
        return sum(self.decisions.values()) / self.seconds * 60

    @property
    def acted_per_minute(self) -> float:
        """Decisions that do anything but hold."""
        return self.decisions_per_minute - self.decisions.get("Hold", 0) / self.seconds * 60

    @property
    def writes_per_decision(self) -> float | None:
        if not self.decisions:
            return None
        return self.writes_per_minute / self.decisions_per_minute


def load_of(
    before: Reading,
    after: Reading,
    events: Iterable[AuditEvent],
    *,
    rss_bytes: int,
    api_server_bytes: int,
    received_bytes: int | None,
) -> WindowLoad:
    """What lies between two readings.

    Args:
        before: at the window's begin.
        after: at its end.
        events: the operator's requests; those of other times are passed over.
        rss_bytes: of the operator, the most that was seen.
        api_server_bytes: of the API server, likewise.
        received_bytes: in the window.
    """
    seconds = after.at_s - before.at_s
    passes = after.passes - before.passes
    operator_s = after.operator_s - before.operator_s
    within = between(events, before.at, after.at)
    reads = Counter(_kind(each) for each in within if not each.is_write and each.verb != _WATCH)
    writes = Counter(_kind(each) for each in within if each.is_write)
    decisions = after.decisions - before.decisions
    return WindowLoad(
        seconds=seconds,
        operator_cores=operator_s / seconds,
        waited_cores=(after.waited_s - before.waited_s) / seconds,
        rss_mib=rss_bytes / _KIB**2,
        passes_per_minute=passes / seconds * 60,
        failed_passes=after.failures - before.failures,
        restarts=after.restarts - before.restarts,
        cpu_ms_per_pass=operator_s / passes * 1000 if passes else None,
        reads_per_minute=reads.total() / seconds * 60,
        reads_by_kind=dict(reads.most_common()),
        writes_per_minute=writes.total() / seconds * 60,
        writes_by_kind=dict(writes.most_common()),
        received_kib_per_minute=(
            None if received_bytes is None else received_bytes / _KIB / seconds * 60
        ),
        pages_per_second=(after.pages - before.pages) / seconds,
        decisions=dict(decisions.most_common()),
        api_server_cores=(after.api_server_s - before.api_server_s) / seconds,
        api_server_mib=api_server_bytes / _KIB**2,
        etcd_cores=(after.etcd_s - before.etcd_s) / seconds,
        bench_cores=(after.bench_s - before.bench_s) / seconds,
        machine_cores=(after.machine_s - before.machine_s) / seconds,
    )


def between(events: Iterable[AuditEvent], since: datetime, until: datetime) -> list[AuditEvent]:
    """Those of a window of time, the lease's left out."""
    return [each for each in events if since <= each.at < until and each.resource != _LEASES]


def _kind(event: AuditEvent) -> str:
    """What a request is about; whoever names no resource asks what the server is and serves."""
    return event.resource or "discovery"


def first_write_seconds(
    edits: Iterable[AuditEvent], writes: Sequence[AuditEvent]
) -> tuple[list[float], int]:
    """From each edit of a resource to the operator's first write for it.

    What the operator writes for a resource bears the resource's name, or one that begins with it.

    Args:
        edits: of resources, by their user.
        writes: the operator's, oldest first.

    Returns:
        The seconds, and how many edits no write followed.
    """
    seconds, lost = list[float](), 0
    for edit in edits:
        answer = next(
            (
                each
                for each in writes
                if each.at > edit.at
                and each.namespace == edit.namespace
                and each.name.startswith(edit.name)
            ),
            None,
        )
        if answer is None:
            lost += 1
        else:
            seconds.append((answer.at - edit.at).total_seconds())
    return seconds, lost


class Start(_Measured):
    """Something that the operator was given to do at once."""

    seconds: float | None
    """Until it was done; None: that was not waited for any longer."""
    cpu_seconds: float
    """Processor seconds of the operator, until then."""
    restarts: int
    """How often it ended by itself until then."""
    reads: int
    writes: int


class SizeFigures(_Measured):
    """All of one size."""

    resources: int
    pods: int
    """That serve, and so show a page."""
    namespaces: int
    build: Start
    """From the first resource that is created beside a running operator, until all children of all
    stand."""
    start: Start
    """On resources whose children stand."""
    rest: WindowLoad
    """No request at any engine."""
    edits_at_rest: Percentiles | None
    """Seconds from an edit to the operator's first write."""
    traffic: WindowLoad
    """Requests at every engine."""
    edits_under_traffic: Percentiles | None
    steady: WindowLoad | None
    """Requests at every engine for so long that the tuner has learnt; None: that was not asked."""
    edits_when_steady: Percentiles | None
    takeovers: tuple[Takeover, ...]
    memory: tuple[MemoryLook, ...]
    """Memory of the operator of the cold start, until its end for the first takeover."""
    edits_unanswered: int
    status_bytes: Percentiles
    """Size of a status, as JSON."""
    restarts: int
    """How often the operator ended by itself, also between what is measured."""
    warnings: dict[str, int]
    """Warnings in the operator's log, from the first start to the end."""

    @property
    def page_cpu_ms(self) -> float | None:
        """What a page read costs, with the window's part of what is decided on it.

        Processor time under traffic beyond that at rest, over the pages beyond those at rest.
        """
        pages = self.traffic.pages_per_second - self.rest.pages_per_second
        if pages <= 0:
            return None
        return (self.traffic.operator_cores - self.rest.operator_cores) / pages * 1000

    @property
    def pods_per_core(self) -> float | None:
        """Pods under traffic that one processor would carry, everything included."""
        cores = self.traffic.operator_cores
        return self.pods / cores if cores > 0 else None

    @property
    def pods_per_core_once_a_window(self) -> float | None:
        """As many as one processor would carry if each were read once in 30 s.

        While the tuner probes, it looks at its pods more often.
        """
        page_ms = self.page_cpu_ms
        return _WINDOW_S * 1000 / page_ms if page_ms is not None and page_ms > 0 else None


FigureOf = Callable[[SizeFigures], float | None]
_Part = TypeVar("_Part")


class ScaleReport(_Measured):
    """Everything."""

    kubernetes: str
    python: str
    processors: int
    slowness: float
    """Times that a bit of Python takes as long as where the documentation's figures are of."""
    pods_each: int
    one_namespace: bool
    quick: bool
    minutes: float
    sizes: tuple[SizeFigures, ...]
    failure: str = ""
    """Why a larger size could not be measured; empty: all were."""


def growth(smaller: float | None, larger: float | None) -> float | None:
    """How many times as much; None: that cannot be said."""
    if smaller is None or larger is None or smaller <= 0:
        return None
    return larger / smaller


def of_part(
    part: Callable[[SizeFigures], _Part | None], figure: Callable[[_Part], float | None]
) -> FigureOf:
    """A figure of a part that not every size has."""

    def value(size: SizeFigures) -> float | None:
        return None if (found := part(size)) is None else figure(found)

    return value
