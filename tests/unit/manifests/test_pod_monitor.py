"""How often a Prometheus is asked to scrape the engines."""

from typing import Any

import pytest

from fathom.manifests.services import pod_monitor
from manifest_samples import resource


@pytest.mark.parametrize(
    ("window_s", "interval"), [(5, "5s"), (10, "5s"), (30, "15s"), (60, "30s"), (300, "30s")]
)
def test_it_is_scraped_twice_a_window_and_at_least_every_half_minute(
    window_s: int, interval: str
) -> None:
    monitor = pod_monitor(resource({"speculation.tuning.windowSeconds": window_s}))
    spec = monitor["spec"]
    assert spec["podMetricsEndpoints"] == [
        {"port": "http", "path": "/metrics", "interval": interval}
    ]


@pytest.mark.parametrize(
    "container",
    [
        {"name": "vllm", "ports": [{"containerPort": 8000, "name": "metrics"}]},
        {"name": "side", "image": "side", "ports": [{"containerPort": 9000, "name": "http"}]},
    ],
    ids=["renamed", "another's"],
)
def test_a_port_that_a_name_might_miss_is_found_by_number(container: dict[str, Any]) -> None:
    monitor = pod_monitor(resource({"podTemplate": {"spec": {"containers": [container]}}}))
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]

    assert endpoint["targetPort"] == 8000
    assert "port" not in endpoint
