"""How long until the next leader acts, and whether memory grows."""

from datetime import UTC, datetime, timedelta

import pytest

from fathom_bench.scale.memory import MemoryLook, gained_per_hour
from fathom_bench.scale.takeover import Ending, takeover_of
from fathom_local.control_plane.audit import AuditEvent

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)


def event(seconds: float, verb: str = "patch", resource: str = "configmaps") -> AuditEvent:
    return AuditEvent(
        user="operator",
        verb=verb,
        resource=resource,
        subresource="",
        api_group="",
        namespace="a",
        name="b",
        code=200,
        at=BEGAN + timedelta(seconds=seconds),
    )


def test_a_takeover_lasts_until_the_first_write() -> None:
    events = [event(1.0, verb="list"), event(3.0), event(5.0, resource="deployments")]
    until = BEGAN + timedelta(seconds=9)
    taken = takeover_of(Ending.KILLED, BEGAN, until, events, within=True)
    assert taken.first_write_seconds == 3.0
    assert taken.looked_at_seconds == 9.0
    assert taken.writes_to_workloads == 1


def test_a_takeover_without_a_write_has_no_time() -> None:
    until = BEGAN + timedelta(seconds=9)
    taken = takeover_of(Ending.STOPPED, BEGAN, until, [event(1.0, verb="get")], within=False)
    assert taken.first_write_seconds is None
    assert taken.looked_at_seconds is None
    assert taken.writes_to_workloads == 0


def test_memory_that_grows_only_while_caches_fill_gains_nothing() -> None:
    looks = [MemoryLook(seconds=60.0 * i, mib=200.0 + min(i, 10)) for i in range(60)]
    assert gained_per_hour(looks) == pytest.approx(0.0, abs=1e-9)


def test_nothing_is_said_of_memory_that_was_watched_for_minutes_only() -> None:
    assert gained_per_hour([]) is None
    assert gained_per_hour([MemoryLook(seconds=60.0 * i, mib=200.0) for i in range(9)]) is None
