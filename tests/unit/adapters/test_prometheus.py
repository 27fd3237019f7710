"""From a Prometheus's series of one pod to its counters: each counted once, whoever scraped it."""

import asyncio
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from urllib.parse import parse_qs, parse_qsl, urlencode, urlsplit

import pytest
from prometheus_client.parser import text_string_to_metric_families

from fathom.adapters.exposition import counters
from fathom.adapters.http import http_session
from fathom.adapters.ports import PodEndpoint, Sample
from fathom.adapters.prometheus_history import scrapes
from fathom.adapters.prometheus_metrics import (
    LARGEST_ANSWER_BYTES,
    PrometheusMetrics,
    at_its_address,
    newest_scrape,
)
from fathom.adapters.prometheus_query import NO_LABELS, Series
from fathom.adapters.series import EVERY_ENGINE, FAMILIES, INFO, PAGE_LABELS
from fathom.measurement.counters import PodCounters
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


def after(earlier: list[Series], later: list[Series]) -> list[Series]:
    """Both scrapes of the same series."""
    pairs = zip(earlier, later, strict=True)
    return [replace(each, values=each.values + more.values) for each, more in pairs]


@pytest.mark.parametrize("arrived", [1, 10, -1], ids=["one series", "ten", "all but one"])
def test_a_scrape_that_arrived_in_part_is_not_read_yet(arrived: int) -> None:
    """As by remote write: what is missing would be taken for the counters of another life."""
    earlier, later = scraped(ENGINE, 70), scraped(FakeEngine(engines=2, tokens=999), 100)
    both = after(earlier, later)

    found = read([*both[:arrived], *earlier[arrived:]])

    assert found == replace(ONCE, at_s=70)
    assert read(both) == read(later)


def test_what_a_restarted_engine_shows_no_more_is_missed_for_one_scrape_only() -> None:
    earlier_life = scraped(ENGINE, 70)
    shown = after(*(scraped(FakeEngine(), at_s) for at_s in (100, 130)))

    assert read([*earlier_life, *shown]) == read(scraped(FakeEngine(), 130))


ELSEWHERE = scraped(FakeEngine(tokens=9e9), 110, instance="10.9.0.1:8000")


@pytest.mark.parametrize(
    ("ip", "instance"), [("10.0.0.1", "10.0.0.1:8000"), ("fd00::1", "[fd00::1]:8000")]
)
def test_a_pod_of_that_name_in_another_cluster_is_not_read(ip: str, instance: str) -> None:
    ours = scraped(ENGINE, 100, instance=instance)

    assert read(at_its_address([*ours, *ELSEWHERE], ip)) == ONCE


def test_a_pod_is_read_under_whatever_name_it_is_scraped() -> None:
    renamed = scraped(ENGINE, 100, instance="kimi-0")

    assert read(at_its_address(renamed, "10.0.0.1")) == ONCE


def test_of_two_jobs_of_which_one_names_another_address_the_newest_is_read() -> None:
    by_name = scraped(FakeEngine(engines=2, tokens=999), 110, instance="kimi-0:8000")
    ours = scraped(ENGINE, 100)

    found = at_its_address([*ours, *by_name, *ELSEWHERE], "10.0.0.1")

    assert read(found) == read(by_name)


def test_engines_of_one_pod_that_count_the_same_are_still_two() -> None:
    alike = FakeEngine(engines=2, tokens=7)

    assert read(scraped(alike, 100)).engine.generation_tokens == 14


def test_every_label_of_a_page_is_known() -> None:
    """One that were not would be taken for a scraper's, and its series for copies."""
    counted = [each for each in scraped(ENGINE, 100) if each.name != INFO]
    shown = {label for each in counted for label in each.metric}

    assert shown | {"finished_reason"} == {*PAGE_LABELS, *OURS, "__name__"}


async def asked_for(answer: object, *names: str) -> Sample:
    return (await asked(saying(json.dumps(answer).encode()), *names))[0]


async def asked(
    answer: Answer,
    *names: str,
    ip: str = "127.0.0.1",
    labels: Mapping[str, str] = NO_LABELS,
) -> tuple[Sample, list[dict[str, str]]]:
    """What is read of these pods, and the parameters of every question that it took."""
    async with answering(answer) as server, http_session(4) as session:
        pods = [PodEndpoint(namespace="llm", pod=name, ip=ip, port=1) for name in names]
        sample = await PrometheusMetrics(session, server.url, labels=labels).sample(pods)
    return sample, [dict(parse_qsl(urlsplit(each).query)) for each in server.asked]


@dataclass
class Scrapes:
    """A Prometheus that has scraped pods, each of the same page, at some moments; 1000 s is now."""

    moments: dict[str, list[float]]
    labels: dict[str, str] = field(default_factory=dict)
    others: dict[str, list[float]] | None = None
    """Scrapes of the Prometheus behind the same address that answers every second question."""
    most_pods: int = 100
    """More of them in one answer are too many bytes."""
    elsewhere: dict[str, list[float]] = field(default_factory=dict)
    """Scrapes of pods of these names at another address."""
    failed: dict[str, float] = field(default_factory=dict)
    """Moments at which a scrape failed, as VictoriaMetrics shows them."""

    async def __call__(self, server: BadServer, writer: asyncio.StreamWriter) -> None:
        asked = parse_qs(urlsplit(server.asked[-1]).query)
        until_s = float(asked.get("time", ["1000"])[0])
        query, _, lookback = asked["query"][0].replace("\\", "").rpartition("[")
        since_s = until_s - int(lookback.removesuffix("ms]")) / 1000
        of_everything = "fathom_steps_total" in query
        moments = self.others if of_everything and self.others is not None else self.moments
        pods = [pod for pod in moments if re.search(rf"\b{pod}\b", query)]
        if "kubernetes" in query and "kubernetes_pod_name" not in self.labels:
            pods = []
        found: dict[tuple[tuple[str, str], ...], list[list[object]]] = {}
        told = [(pod, at_s, OURS["instance"]) for pod in pods for at_s in moments[pod]]
        told += [
            (pod, at_s, "10.9.0.1:8000") for pod in pods for at_s in self.elsewhere.get(pod, ())
        ]
        for pod, at_s, instance in (each for each in told if since_s < each[1] <= until_s):
            for each in scraped(ENGINE, at_s, **self.labels, instance=instance):
                if of_everything or each.name == EVERY_ENGINE:
                    key = tuple({**each.metric, "pod": pod}.items())
                    value = "NaN" if self.failed.get(pod) == at_s else str(each.values[0][1])
                    found.setdefault(key, []).append([at_s, value])
        said = [{"metric": dict(key), "values": values} for key, values in found.items()]
        body = json.dumps({"status": "success", "data": {"result": said}}).encode()
        if of_everything and len(pods) > self.most_pods:
            body += b" " * LARGEST_ANSWER_BYTES
        await saying(body)(server, writer)


def questions_for_all(asked: list[dict[str, str]]) -> list[dict[str, str]]:
    """Those that end at a scrape: the others ask when there was one."""
    return [each for each in asked if "time" in each]


async def test_a_pod_with_both_pairs_of_labels_counts_once() -> None:
    both = {"kubernetes_pod_name": "p", "kubernetes_namespace": "llm"}

    sample, _ = await asked(Scrapes({"p": [975.0, 990.0]}, both), "p", "q")

    assert sample.counters == (replace(ONCE, at_s=990.0),)
    assert [each.pod for each in sample.failures] == ["q"]


async def test_a_range_reaches_back_to_the_earliest_last_scrape_and_one_more() -> None:
    moments = {"p": [980.5, 985.5], "q": [985.0, 990.0]}

    sample, questions = await asked(Scrapes(moments), "p", "q")

    assert {each.pod: each.at_s for each in sample.counters} == {"p": 985.5, "q": 990.0}
    (ranged,) = questions_for_all(questions)
    assert ranged["time"] == "990.0"
    assert ranged["query"].endswith("[9501ms]")


async def test_another_prometheus_behind_the_address_may_answer_the_second_question() -> None:
    ours, others = {"p": [960.0, 990.0]}, {"p": [945.0, 975.0]}

    sample, _ = await asked(Scrapes(ours, others=others), "p")

    assert sample.counters == (replace(ONCE, at_s=975.0),)


async def test_where_a_pod_was_scraped_last_is_told_by_its_own_address() -> None:
    scrapes = Scrapes({"p": [930.0, 960.0]}, elsewhere={"p": [965.0, 995.0]})

    sample, questions = await asked(scrapes, "p", ip="10.0.0.1")

    assert sample.counters == (replace(ONCE, at_s=960.0),)
    assert [each["time"] for each in questions_for_all(questions)] == ["960.0"]


async def test_labels_of_the_cluster_stand_in_every_question() -> None:
    scrapes = Scrapes({"p": [990.0]})

    _, questions = await asked(scrapes, "p", "q", labels={"cluster": "eu.1", "pod": "p"})

    assert len(questions) > len(questions_for_all(questions)) > 0
    for each in questions:
        assert r',cluster=~"eu\\.1",pod=~"p"}[' in each["query"]


async def test_where_nothing_is_found_the_labels_are_named() -> None:
    sample, _ = await asked(Scrapes({}), "p", labels={"tenant": "a", "cluster": "eu"})

    (failure,) = sample.failures
    assert failure.cause.endswith("with labels namespace and pod and cluster=eu and tenant=a")


async def test_pods_whose_scrapes_are_far_apart_are_not_asked_for_together() -> None:
    sample, questions = await asked(Scrapes({"p": [900.0], "q": [990.0]}), "p", "q")

    assert {each.pod for each in sample.counters} == {"p", "q"}
    assert [each["time"] for each in questions_for_all(questions)] == ["900.0", "990.0"]


async def test_a_scrape_that_failed_is_passed_over_however_it_is_shown() -> None:
    moments = {"p": [975.0, 985.0], "q": [975.0, 990.0], "r": [985.0]}

    sample, _ = await asked(Scrapes(moments, failed={"p": 985.0, "r": 985.0}), *moments)

    assert {each.pod: each.at_s for each in sample.counters} == {"p": 975.0, "q": 990.0}
    (failure,) = sample.failures
    assert failure.pod == "r"
    assert "no vllm: metrics of it within the last 150 s" in failure.cause


async def test_a_scrape_of_long_ago_is_none() -> None:
    sample, questions = await asked(Scrapes({"p": [849.0]}), "p")

    (failure,) = sample.failures
    assert "no vllm: metrics of it within the last 150 s" in failure.cause
    assert questions_for_all(questions) == []


@pytest.mark.parametrize(("pods", "questions"), [(8, 1), (9, 2)])
async def test_many_pods_take_few_questions(pods: int, questions: int) -> None:
    moments = {f"p{number}": [990.0] for number in range(pods)}

    sample, asked_all = await asked(Scrapes(moments), *moments)

    assert len(sample.counters) == pods
    assert len(questions_for_all(asked_all)) == questions


async def test_pods_that_are_too_much_for_one_answer_are_asked_for_in_several() -> None:
    moments = {f"p{number}": [990.0] for number in range(8)}

    sample, asked_all = await asked(Scrapes(moments, most_pods=2), *moments)

    assert sorted(each.pod for each in sample.counters) == sorted(moments)
    assert sample.failures == ()
    assert len(questions_for_all(asked_all)) == 1 + 2 + 4


async def test_a_single_pod_that_is_too_much_is_a_failure_and_takes_no_other_with_it() -> None:
    sample, _ = await asked(Scrapes({"p": [990.0]}, most_pods=0), "p")

    (failure,) = sample.failures
    assert "its answer is larger than" in failure.cause


async def test_questions_about_pods_with_long_names_fit_a_proxys_line() -> None:
    names = [f"{'a-long-name-' * 4}{number}-0a1b2c3d-5f6g7-x8z9q" for number in range(8)]

    _, questions = await asked(Scrapes({name: [990.0] for name in names}), *names)

    assert len(questions_for_all(questions)) == 1
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
        [{"metric": {"pod": "p"}, "value": [1, "1"]}],
        [{"metric": {"pod": "p"}}],
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
