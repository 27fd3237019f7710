"""Which reader answers for a spec's `metrics`."""

from typing import Any

from fathom.adapters.pod_metrics import PodMetrics
from fathom.adapters.prometheus_metrics import PrometheusMetrics
from fathom.api.spec import MetricsSpec
from fathom.runtime.ports import MetricsSources
from support.loop_harness import ManualClock


def sources() -> MetricsSources:
    session: Any = object()  # nothing is sent
    return MetricsSources(session, session, ManualClock())


def at(url: str, **labels: str) -> MetricsSpec:
    return MetricsSpec.model_validate({"prometheusURL": url, "prometheusLabels": labels})


def test_all_that_name_one_prometheus_share_its_reader() -> None:
    found = sources()
    reader = found.of(at("http://prometheus:9090"))
    assert isinstance(reader, PrometheusMetrics)
    assert found.of(at("http://prometheus:9090/")) is reader
    assert found.of(at("http://another:9090")) is not reader


def test_labels_have_a_reader_of_their_own_in_whatever_order() -> None:
    found, url = sources(), "http://prometheus:9090"
    reader = found.of(at(url, cluster="eu", tenant="a"))
    assert found.of(at(url, tenant="a", cluster="eu")) is reader
    assert found.of(at(url, cluster="us", tenant="a")) is not reader
    assert found.of(at(url)) is not reader


def test_without_a_url_the_pods_are_read() -> None:
    found = sources()
    reader = found.of(MetricsSpec())
    assert isinstance(reader, PodMetrics)
    assert found.of(MetricsSpec()) is reader
