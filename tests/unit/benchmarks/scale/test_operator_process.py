"""What the operator's own metrics tell the benchmark."""

from prometheus_client import generate_latest

from benchmarks.scale.operator_process import Told, read_told, warnings_in
from fathom.cluster.kinds import ObjectKey
from fathom.runtime.telemetry import Telemetry


def test_passes_failures_and_decisions_are_read_as_the_operator_shows_them() -> None:
    telemetry = Telemetry()
    for _ in range(3):
        with telemetry.timed():
            pass
    telemetry.failed(ObjectKey("a", "one"))
    telemetry.decided(ObjectKey("a", "one"), "Hold", "Idle")
    telemetry.decided(ObjectKey("a", "one"), "Hold", "Moved")
    telemetry.decided(ObjectKey("b", "two"), "Move", "Moved")
    found = read_told(generate_latest(telemetry.registry).decode())
    assert (found.passes, found.failures) == (3, 1)
    assert found.decisions == {"Hold": 2, "Move": 1}
    assert found.decided == {("a", "one"), ("b", "two")}


def test_an_operator_that_starts_has_told_nothing() -> None:
    assert read_told("") == Told()


def test_warnings_are_counted_by_what_they_say() -> None:
    log = """{"event": "operating", "level": "info"}
{"event": "metrics not read", "level": "warning"}
{"event": "metrics not read", "level": "warning"}
{"event": "Task was destroyed: <Task 7>\\nmore", "level": "error"}
Traceback (most recent call last):
3
"""
    assert warnings_in(log) == {"metrics not read": 2, "Task was destroyed": 1}
