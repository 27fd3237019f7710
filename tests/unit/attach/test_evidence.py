"""What is made of a foreign pod's page and of its object."""

import datetime as dt
from typing import Any, Final

import pytest

from fathom.attach.evidence import with_start
from fathom.cluster.observed_pods import ObservedPod
from fathom.measurement.counters import EngineCounts, PodCounters

MADE: Final = "2026-01-01T08:00:00Z"
READY: Final = "2026-01-01T09:00:00Z"


def seconds(at: str) -> float:
    return dt.datetime.fromisoformat(at).timestamp()


def pod(restarts: int) -> ObservedPod:
    status: dict[str, Any] = {
        "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": READY}],
        "containerStatuses": [{"name": "main", "restartCount": restarts}],
    }
    metadata = {"name": "qwen-0", "namespace": "llm", "uid": "u", "creationTimestamp": MADE}
    return ObservedPod.model_validate({"metadata": metadata, "spec": {}, "status": status})


def page(started_at_s: float) -> PodCounters:
    return PodCounters(
        pod="qwen-0",
        at_s=100.0,
        started_at_s=started_at_s,
        engine=EngineCounts(generation_tokens=1.0),
        live_depth=True,
        depth_generation=0,
    )


@pytest.mark.parametrize(("restarts", "expected"), [(0, MADE), (1, READY)])
def test_an_engine_of_several_processes_started_with_its_pod(restarts: int, expected: str) -> None:
    assert with_start(page(0.0), pod(restarts)).started_at_s == seconds(expected)


def test_what_the_page_says_of_its_start_counts() -> None:
    assert with_start(page(7.0), pod(0)).started_at_s == 7.0
    assert with_start(page(0.0), None).started_at_s == 0.0
