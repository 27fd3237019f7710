"""From samples and requests to figures."""

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from benchmarks.scale.figures import (
    Percentiles,
    Reading,
    between,
    first_write_seconds,
    growth,
    load_of,
    percentile,
)
from benchmarks.scale.received_bytes import Received, received_by_socket
from local_cluster.control_plane.audit import AuditEvent

START = datetime(2026, 1, 1, tzinfo=UTC)
BEFORE = Reading(
    at_s=START.timestamp(),
    operator_s=10.0,
    waited_s=1.0,
    api_server_s=100.0,
    etcd_s=50.0,
    bench_s=5.0,
    machine_s=200.0,
    passes=1000,
    failures=2,
    decisions=Counter({"Hold": 900, "Move": 3}),
    pages=4000,
    restarts=1,
)
AFTER = replace(
    BEFORE,
    at_s=BEFORE.at_s + 30,
    operator_s=13.0,
    waited_s=7.0,
    api_server_s=115.0,
    etcd_s=51.5,
    bench_s=8.0,
    machine_s=245.0,
    passes=1200,
    failures=3,
    decisions=Counter({"Hold": 1080, "Move": 8, "Probe": 5}),
    pages=4600,
    restarts=3,
)


def event(
    after_s: float, verb: str, resource: str, name: str = "", namespace: str = "a"
) -> AuditEvent:
    return AuditEvent(
        user="fathom",
        verb=verb,
        resource=resource,
        subresource="",
        api_group="",
        namespace=namespace,
        name=name,
        code=200,
        at=START + timedelta(seconds=after_s),
    )


@pytest.mark.parametrize(
    ("share", "value"), [(0.0, 1.0), (0.5, 50.0), (0.99, 99.0), (0.991, 100.0), (1.0, 100.0)]
)
def test_a_percentile_is_a_value_that_occurred(share: float, value: float) -> None:
    assert percentile([float(each) for each in range(100, 0, -1)], share) == value


def test_a_percentile_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="no values"):
        percentile([], 0.5)
    assert Percentiles.of([]) is None


def test_few_values_have_their_largest_as_p99() -> None:
    assert Percentiles.of([3.0, 1.0, 2.0]) == Percentiles(count=3, p50=2.0, p99=3.0, most=3.0)


def test_a_window_is_what_lies_between_two_readings() -> None:
    events = [
        event(-1, "list", "pods"),
        event(1, "list", "pods"),
        event(2, "list", "pods"),
        event(3, "get", "speculativedeployments"),
        event(3, "get", ""),
        event(4, "watch", "pods"),
        event(5, "patch", "configmaps"),
        event(6, "update", "leases"),
        event(30, "patch", "configmaps"),
    ]
    found = load_of(
        BEFORE,
        AFTER,
        events,
        rss_bytes=200 * 2**20,
        api_server_bytes=2**30,
        received_bytes=15 * 2**10,
    )
    assert (found.operator_cores, found.waited_cores) == pytest.approx((0.1, 0.2))
    assert found.cpu_ms_per_pass == pytest.approx(15)
    assert found.passes_per_minute == 400
    assert (found.failed_passes, found.restarts) == (1, 2)
    assert (found.reads_per_minute, found.reads_by_kind) == (
        8,
        {"pods": 2, "speculativedeployments": 1, "discovery": 1},
    )
    assert (found.writes_per_minute, found.writes_by_kind) == (2, {"configmaps": 1})
    assert found.received_kib_per_minute == 30
    assert (found.rss_mib, found.api_server_mib) == (200, 1024)
    assert found.pages_per_second == 20
    assert (found.decisions_per_minute, found.acted_per_minute) == (380, 20)
    assert found.writes_per_decision == pytest.approx(2 / 380)
    assert (found.api_server_cores, found.etcd_cores, found.bench_cores) == (0.5, 0.05, 0.1)
    assert found.machine_cores == 1.5


def test_a_window_without_passes_or_decisions_or_ss_says_so() -> None:
    still = replace(BEFORE, at_s=BEFORE.at_s + 30)
    found = load_of(BEFORE, still, [], rss_bytes=0, api_server_bytes=0, received_bytes=None)
    assert found.cpu_ms_per_pass is None
    assert found.writes_per_decision is None
    assert found.received_kib_per_minute is None


def test_what_is_before_after_or_of_the_lease_is_not_in_a_window() -> None:
    inside = event(5, "patch", "pods")
    outside = [event(0.9, "list", "pods"), event(9, "list", "pods"), event(5, "update", "leases")]
    since, until = START + timedelta(seconds=1), START + timedelta(seconds=9)
    assert between([*outside, inside], since, until) == [inside]


def test_an_edit_is_answered_by_the_first_write_for_its_resource() -> None:
    edits = [event(1, "patch", "sds", "steady-0001"), event(2, "patch", "sds", "steady-0002")]
    writes = [
        event(0.5, "patch", "deployments", "steady-0001-abc"),
        event(1.25, "patch", "deployments", "steady-0001-abc", namespace="b"),
        event(1.5, "patch", "deployments", "steady-0001-abc"),
        event(1.75, "patch", "sds", "steady-0001"),
    ]
    assert first_write_seconds(edits, writes) == ([0.5], 1)


@pytest.mark.parametrize(
    ("smaller", "larger", "times"),
    [(2.0, 6.0, 3.0), (0.0, 6.0, None), (None, 6.0, None), (2.0, None, None), (2.0, 0.0, 0.0)],
)
def test_growth(smaller: float | None, larger: float | None, times: float | None) -> None:
    assert growth(smaller, larger) == times


def test_connections_that_come_and_go_are_added_up() -> None:
    received = Received()
    received.look({1: 1000, 2: 50})
    received.look({1: 1500, 3: 70})
    received.look({1: 1600, 3: 70})
    assert received.total == 670


def test_what_ss_says_of_connections() -> None:
    said = (
        "ESTAB 0 0 127.0.0.1:4 127.0.0.1:6443 ino:77 sk:1 <-> cubic bytes_sent:9 "
        "bytes_received:1234 segs_out:4\n"
        "ESTAB 0 0 127.0.0.1:5 127.0.0.1:6443 ino:78 sk:2 <-> cubic segs_out:4\n"
        "TIME-WAIT 0 0 127.0.0.1:6 127.0.0.1:6443\n"
    )
    assert received_by_socket(said) == [(77, 1234), (78, 0)]
