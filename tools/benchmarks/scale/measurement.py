"""What one size has shown, from two moments and the audit log."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

from benchmarks.scale.access import USER
from benchmarks.scale.figures import (
    Reading,
    Start,
    WindowLoad,
    between,
    first_write_seconds,
    load_of,
)
from benchmarks.scale.operator_process import OperatorProcess
from benchmarks.scale.takeover import Ending, Takeover, workloads_written
from fathom.api import names
from local_cluster.control_plane.audit import AuditEvent, read_events
from local_cluster.control_plane.credentials import ADMIN


@dataclass(frozen=True, slots=True)
class EditSpan:
    since: datetime
    until: datetime


@dataclass(frozen=True, slots=True)
class Mark:
    """A moment in the operator's life."""

    at: datetime
    cpu_s: float
    restarts: int

    @classmethod
    def of(cls, operator: OperatorProcess) -> Self:
        return cls(datetime.now(UTC), operator.cpu_s(), operator.restarts)


@dataclass(frozen=True, slots=True)
class Started:
    began: Mark
    ended: Mark
    within: bool
    """Whether it was done in time."""

    @property
    def seconds(self) -> float:
        return (self.ended.at - self.began.at).total_seconds()


@dataclass(frozen=True, slots=True)
class TakenOver:
    ending: Ending
    since: datetime
    first_pass: datetime | None
    """None: there was none in time."""
    looked_at: datetime | None
    """When the next leader had looked at everything; None: not in time."""


@dataclass(frozen=True, slots=True)
class MeasuredWindow:
    before: Reading
    after: Reading
    rss_bytes: int
    api_server_bytes: int
    received_bytes: int | None

    @property
    def operator_cores(self) -> float:
        seconds = self.after.at_s - self.before.at_s
        return (self.after.operator_s - self.before.operator_s) / seconds


def start_of(started: Started, own: Sequence[AuditEvent]) -> Start:
    began, ended = started.began, started.ended
    events = between(own, began.at, ended.at)
    return Start(
        seconds=started.seconds if started.within else None,
        cpu_seconds=ended.cpu_s - began.cpu_s,
        restarts=ended.restarts - began.restarts,
        reads=sum(not each.is_write and each.verb != "watch" for each in events),
        writes=sum(each.is_write for each in events),
    )


def takeover_in(taken: TakenOver, own: Sequence[AuditEvent]) -> Takeover:
    def seconds(until: datetime | None) -> float | None:
        return None if until is None else (until - taken.since).total_seconds()

    until = taken.looked_at or datetime.max.replace(tzinfo=UTC)
    return Takeover(
        ending=taken.ending,
        first_pass_seconds=seconds(taken.first_pass),
        looked_at_seconds=seconds(taken.looked_at),
        workloads_written=workloads_written(between(own, taken.since, until)),
    )


def load_in(window: MeasuredWindow, own: Sequence[AuditEvent]) -> WindowLoad:
    return load_of(
        window.before,
        window.after,
        own,
        rss_bytes=window.rss_bytes,
        api_server_bytes=window.api_server_bytes,
        received_bytes=window.received_bytes,
    )


def answered(
    span: EditSpan, events: Sequence[AuditEvent], own: Sequence[AuditEvent]
) -> tuple[list[float], int]:
    edits = [
        each
        for each in between(events, span.since, span.until)
        if each.user == ADMIN and each.verb == "patch" and each.resource == names.PLURAL
    ]
    writes = [each for each in between(own, span.since, span.until) if each.is_write]
    return first_write_seconds(edits, writes)


def audited(log: Path) -> list[AuditEvent]:
    """All requests, also those of files that the API server has put aside for their size."""
    files = [*sorted(log.parent.glob(f"{log.stem}-*{log.suffix}")), log]
    wanted = {USER, ADMIN}
    return [each for file in files for each in read_events(file) if each.user in wanted]
