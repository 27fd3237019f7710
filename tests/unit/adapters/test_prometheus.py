"""From a Prometheus's series of one pod to its counters: each counted once, whoever scraped it."""

import json
from collections.abc import Iterable

import pytest
from prometheus_client.parser import text_string_to_metric_families

from fathom.adapters.answers import http_session
from fathom.adapters.exposition import FAMILIES, PAGE_LABELS, counters
from fathom.adapters.ports import PodEndpoint, Sample
from fathom.adapters.prometheus.history import scrapes
from fathom.adapters.prometheus.metrics import PrometheusMetrics, newest_scrape
from fathom.adapters.prometheus.query import Series
from fathom.core.measurement import PodCounters
from support.bad_server import answering, saying
from support.engine_page import FakeEngine

OURS = {"namespace": "llm", "pod": "p", "job": "llm/kimi", "instance": "10.0.0.1:8000"}


def scraped(engine: FakeEngine, at_s: float, **labels: str) -> list[Series]:
    """What one scrape of an engine's page leaves in a Prometheus, with the labels of a scraper."""
    return [
        Series({"__name__": each.name, **each.labels, **OURS, **labels}, ((at_s, each.value),))
        for family in text_string_to_metric_families(engine.page())
        for each in family.samples
        if each.name in FAMILIES
    ]


def read(series: Iterable[Series]) -> PodCounters:
    at_s, found = newest_scrape(list(series))
    return counters(found, pod="p", at_s=at_s)


ENGINE = FakeEngine(engines=2)
ONCE = read(scraped(ENGINE, 100))


def test_a_page_is_read_as_it_was_shown() -> None:
    assert ENGINE.is_shown_by(ONCE)


def test_so_is_one_of_a_plugin_that_counts_by_whole_doublings() -> None:
    older = FakeEngine(by_doublings=True)
    assert older.is_shown_by(read(scraped(older, 100)))


@pytest.mark.parametrize(
    "copy",
    [
        scraped(ENGINE, 100, job="llm/kimi-service"),
        scraped(ENGINE, 100, job="a-job", endpoint="http", service="kimi"),
        scraped(ENGINE, 100, instance="kimi.llm.svc:8000"),
        scraped(ENGINE, 100, prometheus_replica="prometheus-1"),
        scraped(ENGINE, 100, prometheus="monitoring/k8s", cluster="eu"),
        scraped(ENGINE, 100, job="federate", exported_job=OURS["job"]),
        scraped(ENGINE, 100, kubernetes_pod_name="p", kubernetes_namespace="llm"),
        scraped(ENGINE, 100),
        scraped(FakeEngine(engines=2, tokens=101), 100, job="a-job"),
        scraped(ENGINE, 93, job="llm/kimi-service"),
        scraped(FakeEngine(started_at_s=1_600_000_000.0, tokens=9e9), 93, instance="10.0.0.9:8000"),
    ],
    ids=[
        "a second job",
        "a ServiceMonitor beside the PodMonitor",
        "by the name of a service",
        "a replica of the Prometheus",
        "with labels from outside",
        "federated",
        "both pairs of labels",
        "the very same series",
        "a second job at the same time, that saw a little more",
        "a second job a little earlier",
        "an earlier pod of this name",
    ],
)
def test_what_is_scraped_twice_counts_once(copy: list[Series]) -> None:
    ours = scraped(ENGINE, 100)

    assert read([*ours, *copy]) == ONCE
    assert read([*copy, *ours]) == ONCE


@pytest.mark.parametrize(
    "labels",
    [
        {"job": "llm/kimi-service"},
        {"prometheus_replica": "prometheus-1"},
        {"kubernetes_pod_name": "p", "kubernetes_namespace": "llm"},
    ],
    ids=["a second job", "a replica of the Prometheus", "both pairs of labels"],
)
def test_the_past_counts_it_once_too(labels: dict[str, str]) -> None:
    twice = [*scraped(ENGINE, 100), *scraped(ENGINE, 100, **labels)]

    (found,) = scrapes(twice)

    assert counters(found.points, pod="p", at_s=found.at_s) == ONCE


def test_engines_of_one_pod_that_count_the_same_are_still_two() -> None:
    alike = FakeEngine(engines=2, tokens=7)

    assert read(scraped(alike, 100)).engine.generation_tokens == 14


def test_every_label_of_a_page_is_known() -> None:
    """One that were not would be taken for a scraper's, and its series for copies."""
    shown = {label for each in scraped(ENGINE, 100) for label in each.metric}

    assert shown | {"finished_reason"} == {*PAGE_LABELS, *OURS, "__name__"}


async def asked_for(answer: object, *names: str) -> Sample:
    async with answering(saying(json.dumps(answer).encode())) as server, http_session(4) as session:
        pods = [PodEndpoint("llm", name, "127.0.0.1", 1) for name in names]
        return await PrometheusMetrics(session, server.url).sample(pods)


async def test_a_prometheus_that_answers_both_questions_alike_counts_once() -> None:
    both = {"kubernetes_pod_name": "p", "kubernetes_namespace": "llm"}
    result = [
        {"metric": each.metric, "values": [[at_s, str(value)] for at_s, value in each.values]}
        for each in scraped(ENGINE, 100, **both)
    ]

    sample = await asked_for({"status": "success", "data": {"result": result}}, "p", "q")

    assert sample.counters == (ONCE,)
    assert [each.pod for each in sample.failures] == ["q"]


@pytest.mark.parametrize(
    "result",
    [
        [{"metric": {"pod": "p"}, "values": []}],
        [{"metric": {"pod": "p"}, "values": [["NaN", "1"]]}],
        [{"metric": {"pod": "p"}, "values": [["Infinity", "1"]]}],
        [{"metric": {"pod": "p"}, "values": [[1, "x"]]}],
        [{"metric": {"pod": "p"}, "values": [[10**400, "1"]]}],
        [{"metric": {"pod": "p"}, "values": [[1, "1", 1]]}],
        [{"metric": {"pod": 5}, "values": [[1, "1"]]}],
        [{"metric": {"namespace": "llm"}, "values": [[1, "1"]]}],
        [{"metric": ["pod"], "values": [[1, "1"]]}],
        [{"metric": {"pod": "p"}, "value": [1, "1"]}],
        [5],
        5,
        None,
    ],
    ids=lambda value: str(value)[:60],
)
async def test_what_is_no_range_vector_is_no_answer(result: object) -> None:
    sample = await asked_for({"data": {"result": result}}, "p")

    (failure,) = sample.failures
    assert "its answer is not a Prometheus's" in failure.cause
