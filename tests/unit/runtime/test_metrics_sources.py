"""Which reader answers for a spec's `metrics`."""

import json
from pathlib import Path
from typing import Any

from fathom.adapters.pod_metrics import PodMetrics
from fathom.adapters.ports import PodEndpoint
from fathom.adapters.prometheus_metrics import PrometheusMetrics
from fathom.adapters.prometheus_sources import NO_SOURCES, PrometheusSources, read_sources
from fathom.api.spec import MetricsSpec
from fathom.runtime.ports import MetricsSources
from support.fake_kube import FakeKube
from support.loop_harness import ManualClock


def sources(with_login: PrometheusSources = NO_SOURCES) -> MetricsSources:
    session: Any = object()  # nothing is sent
    clock = ManualClock()
    return MetricsSources(
        pods=session, prometheus=session, clock=clock, kube=FakeKube(), sources=with_login
    )


def at(url: str, **labels: str) -> MetricsSpec:
    return MetricsSpec.model_validate({"prometheusURL": url, "prometheusLabels": labels})


def test_all_that_name_one_prometheus_share_its_reader() -> None:
    found = sources()
    reader = found.of(at("http://prometheus:9090"), "llm")
    assert isinstance(reader, PrometheusMetrics)
    assert found.of(at("http://prometheus:9090/"), "llm") is reader
    assert found.of(at("http://another:9090"), "llm") is not reader


def test_labels_have_a_reader_of_their_own_in_whatever_order() -> None:
    found, url = sources(), "http://prometheus:9090"
    reader = found.of(at(url, cluster="eu", tenant="a"), "llm")
    assert found.of(at(url, tenant="a", cluster="eu"), "llm") is reader
    assert found.of(at(url, cluster="us", tenant="a"), "llm") is not reader
    assert found.of(at(url), "llm") is not reader


def test_without_a_url_the_pods_are_read() -> None:
    found = sources()
    reader = found.of(MetricsSpec(), "llm")
    assert isinstance(reader, PodMetrics)
    assert found.of(MetricsSpec(), "llm") is reader


async def test_a_source_is_asked_by_its_own_url_and_what_is_not_granted_is_said(
    tmp_path: Path,
) -> None:
    file = tmp_path / "sources.json"
    central = {"name": "central", "url": "https://p.example.com", "namespaces": ["llm"]}
    file.write_text(json.dumps({"sources": [central]}))
    found = sources(read_sources(file, ManualClock()))
    spec = MetricsSpec.model_validate({"prometheus": {"source": "central"}})

    reader = found.of(spec, "llm")
    assert isinstance(reader, PrometheusMetrics)
    assert found.of(spec, "llm") is reader
    assert found.of(at("https://p.example.com"), "llm") is not reader
    pod = PodEndpoint(namespace="web", pod="p", ip="10.0.0.1", port=8000)
    (unread,) = (await found.of(spec, "web").sample([pod])).failures
    assert (unread.pod, unread.refused) == ("p", True)
    assert "namespace web may use no source 'central'" in unread.cause
