"""How long until the next leader acts, and whether memory grows."""

from datetime import UTC, datetime, timedelta

import pytest

from benchmarks.scale.measurement import TakenOver, takeover_in
from benchmarks.scale.memory import MemoryLook, gained_per_hour
from benchmarks.scale.takeover import Ending, workloads_written
from local_cluster.control_plane.audit import AuditEvent

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)


def event(verb: str, resource: str, seconds: float = 0.0) -> AuditEvent:
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


def test_what_a_takeover_may_not_do_is_counted_and_what_tuning_does_is_not() -> None:
    tuning = [event("patch", "configmaps"), event("patch", "pods"), event("list", "deployments")]
    rollout = [event("patch", "deployments"), event("delete", "pods"), event("create", "pods")]
    assert workloads_written(tuning) == 0
    assert workloads_written([*tuning, *rollout]) == 3


@pytest.mark.parametrize("known", [True, False])
def test_a_takeover_lasts_until_everything_is_looked_at(*, known: bool) -> None:
    looked_at = BEGAN + timedelta(seconds=9) if known else None
    taken = TakenOver(Ending.KILLED, BEGAN, BEGAN + timedelta(seconds=3), looked_at)
    events = [event("patch", "deployments", seconds) for seconds in (-1.0, 5.0)]
    found = takeover_in(taken, events)
    assert found.first_pass_seconds == 3.0
    assert found.looked_at_seconds == (9.0 if known else None)
    assert found.workloads_written == 1


def test_memory_that_grows_only_while_caches_fill_gains_nothing() -> None:
    looks = [MemoryLook(seconds=60.0 * i, mib=200.0 + min(i, 10)) for i in range(60)]
    assert gained_per_hour(looks) == pytest.approx(0.0, abs=1e-9)


def test_nothing_is_said_of_memory_that_was_watched_for_minutes_only() -> None:
    assert gained_per_hour([]) is None
    assert gained_per_hour([MemoryLook(seconds=60.0 * i, mib=200.0) for i in range(9)]) is None
