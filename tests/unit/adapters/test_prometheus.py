"""From a Prometheus's series of one pod to its counters: each counted once, whoever scraped it."""

import asyncio
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from urllib.parse import parse_qs, parse_qsl, urlencode, urlsplit

import pytest
from prometheus_client.parser import text_string_to_metric_families

from fathom.adapters.answers import http_session
from fathom.adapters.exposition import FAMILIES, PAGE_LABELS, counters
from fathom.adapters.ports import PodEndpoint, Sample
from fathom.adapters.prometheus.history import scrapes
from fathom.adapters.prometheus.metrics import PrometheusMetrics, newest_scrape
from fathom.adapters.prometheus.query import Series
from fathom.core.measurement import PodCounters
from support.bad_server import Answer, BadServer, answering, saying
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
    return (await asked(saying(json.dumps(answer).encode()), *names))[0]


async def asked(answer: Answer, *names: str) -> tuple[Sample, list[dict[str, str]]]:
    """What is read of these pods, and the parameters of every question that it took."""
    async with answering(answer) as server, http_session(4) as session:
        pods = [PodEndpoint("llm", name, "127.0.0.1", 1) for name in names]
        sample = await PrometheusMetrics(session, server.url).sample(pods)
    return sample, [dict(parse_qsl(urlsplit(each).query)) for each in server.asked]


def prometheus(scrapes: Mapping[str, float], **labels: str) -> Answer:
    """One that has pods' last scrapes, all of the same page: their times, and 1000 s is now."""

    async def answer(server: BadServer, writer: asyncio.StreamWriter) -> None:
        query = parse_qs(urlsplit(server.asked[-1]).query)["query"][0]
        result: list[dict[str, object]]
        if query.startswith("timestamp("):
            result = [
                {"metric": {**OURS, "pod": pod, **labels}, "value": [1000, str(at_s)]}
                for pod, at_s in scrapes.items()
            ]
        else:
            result = [
                {
                    "metric": {**each.metric, "pod": pod},
                    "values": [[at_s, str(value)] for at_s, value in each.values],
                }
                for pod, at_s in scrapes.items()
                if re.search(rf"\b{pod}\b", query)
                for each in scraped(ENGINE, at_s, **labels)
            ]
        said = json.dumps({"status": "success", "data": {"result": result}}).encode()
        await saying(said)(server, writer)

    return answer


async def test_a_pod_with_both_pairs_of_labels_is_asked_for_once() -> None:
    both = {"kubernetes_pod_name": "p", "kubernetes_namespace": "llm"}

    sample, questions = await asked(prometheus({"p": 990.0}, **both), "p", "q")

    assert sample.counters == (replace(ONCE, at_s=990.0),)
    assert [each.pod for each in sample.failures] == ["q"]
    assert len(questions) == 2


async def test_a_range_reaches_from_the_earliest_last_scrape_to_the_latest() -> None:
    sample, questions = await asked(prometheus({"p": 985.5, "q": 990.0}), "p", "q")

    assert {each.pod: each.at_s for each in sample.counters} == {"p": 985.5, "q": 990.0}
    _, ranged = questions
    assert ranged["time"] == "990.0"
    assert ranged["query"].endswith("[4501ms]")


async def test_pods_whose_scrapes_are_far_apart_are_not_asked_for_together() -> None:
    sample, questions = await asked(prometheus({"p": 900.0, "q": 990.0}), "p", "q")

    assert {each.pod for each in sample.counters} == {"p", "q"}
    assert [each.get("time") for each in questions] == [None, "900.0", "990.0"]


async def test_a_scrape_of_long_ago_is_none() -> None:
    sample, questions = await asked(prometheus({"p": 849.0}), "p")

    (failure,) = sample.failures
    assert "no vllm: metrics of it within the last 150 s" in failure.cause
    assert len(questions) == 1


@pytest.mark.parametrize(("pods", "questions"), [(16, 2), (17, 4)])
async def test_many_pods_take_few_questions(pods: int, questions: int) -> None:
    scrapes = {f"p{number}": 990.0 for number in range(pods)}

    sample, asked_all = await asked(prometheus(scrapes), *scrapes)

    assert len(sample.counters) == pods
    assert len(asked_all) == questions


async def test_questions_about_pods_with_long_names_fit_a_proxys_line() -> None:
    names = [f"{'a-long-name-' * 4}{number}-0a1b2c3d-5f6g7-x8z9q" for number in range(16)]

    _, questions = await asked(prometheus(dict.fromkeys(names, 990.0)), *names)

    assert len(questions) == 2
    assert max(len(urlencode(each)) for each in questions) < 8000


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
        [{"metric": {"pod": "p"}, "value": [1]}],
        [{"metric": {"pod": "p"}}],
        [5],
        5,
        None,
    ],
    ids=lambda value: str(value)[:60],
)
async def test_what_is_no_vector_is_no_answer(result: object) -> None:
    sample = await asked_for({"data": {"result": result}}, "p")

    (failure,) = sample.failures
    assert "its answer is not a Prometheus's" in failure.cause
