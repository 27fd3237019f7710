"""From a Prometheus's series to scrapes and to looks, from answers as a Prometheus gives them.

A real one is asked in tests/contract/test_metrics_sources.py.
"""

import re
from collections import defaultdict
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path

import pytest
from aiohttp import web

from fathom.adapters.exposition import counters
from fathom.adapters.prometheus_history import Scrape, scrapes
from fathom.adapters.prometheus_query import Series
from fathom.cluster.kinds import ObjectKey
from fathom.measurement.counters import PodCounters
from fathom.replay.run import Past, feed_files, feed_prometheus
from unit.replay.recorded import points, record
from unit.tuning.plant import START_S, Fleet

KEY = ObjectKey("llm", "kimi")
POD = "kimi-0a1b2c3d-5f6g7-{}"


def series(name: str, *values: tuple[float, float], **labels: str) -> Series:
    metric = {"__name__": name, "namespace": "llm", "pod": "p", "job": "j", **labels}
    return Series(metric=metric, values=values)


def test_samples_of_one_time_are_one_scrape_without_the_targets_labels() -> None:
    found = scrapes([series("a", (1, 10), (2, 20), engine="0"), series("b", (2, 5), depth="3")])

    assert [(each.at_s, len(each.points)) for each in found] == [(1, 1), (2, 2)]
    assert [(point.name, point.labels) for point in found[1].points] == [
        ("a", {"engine": "0"}),
        ("b", {"depth": "3"}),
    ]


def test_of_two_jobs_that_scrape_one_pod_one_counts() -> None:
    found = scrapes([series("a", (1, 10), job="x"), series("a", (1, 10), (2, 11), job="y")])

    assert [(each.at_s, len(each.points)) for each in found] == [(1, 1), (2, 1)]


class Recorder:
    """Answers instant queries with range selectors from scrapes it holds."""

    def __init__(self, looks: list[PodCounters]) -> None:
        self._looks = looks
        self.queries: list[str] = []

    async def answer(self, request: web.Request) -> web.Response:
        query, until_s = request.query["query"], float(request.query["time"])
        self.queries.append(query)
        range_ms = re.search(r"\[(\d+)ms\]$", query)
        assert range_ms is not None
        result: defaultdict[tuple[tuple[str, str], ...], list[tuple[float, str]]] = defaultdict(
            list
        )
        for look in self._looks if "kubernetes" not in query else ():
            if until_s - int(range_ms[1]) / 1000 < look.at_s <= until_s:
                for point in points(look):
                    labels = {"__name__": point.name, "pod": look.pod, **point.labels}
                    result[tuple(sorted(labels.items()))].append((look.at_s, str(point.value)))
        answer = [{"metric": dict(labels), "values": found} for labels, found in result.items()]
        return web.json_response({"status": "success", "data": {"result": answer}})


@pytest.fixture
def looks() -> list[PodCounters]:
    return record(Fleet(), 700)


@pytest.fixture
async def recorder(looks: list[PodCounters]) -> AsyncIterator[tuple[Recorder, str]]:
    recorder = Recorder(looks)
    app = web.Application()
    app.router.add_get("/api/v1/query", recorder.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield recorder, f"http://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


async def fed(url: str, *, step_s: float = 1.0, save: Path | None = None) -> list[PodCounters]:
    taken: list[PodCounters] = []
    past = Past(url=url, key=KEY, from_s=START_S, to_s=START_S + 800, step_s=step_s, save=save)
    await feed_prometheus(past, taken.append, pytest.fail)
    return taken


async def test_every_scrape_comes_once_and_in_order(
    recorder: tuple[Recorder, str], looks: list[PodCounters]
) -> None:
    taken = await fed(recorder[1])

    assert taken == looks
    assert len(recorder[0].queries) == 2 * 3
    asked = recorder[0].queries[0]
    (pattern,) = re.findall('pod=~"([^"]+)"', asked)
    pods = ("kimi-1a2b3c4d-7d9f8-x2k4j", "kimi-1a2b3c4d-0", "kimi-1a2b3c4d-17")
    assert all(re.fullmatch(pattern, pod) for pod in pods)
    assert not re.fullmatch(pattern, "kimi-draft-1a2b3c4d-7d9f8-x2k4j")


async def test_a_longer_step_passes_scrapes_over(recorder: tuple[Recorder, str]) -> None:
    taken = await fed(recorder[1], step_s=30)

    at_s = [look.at_s for look in taken if look.pod == "pod-0"]
    assert {round(b - a) for a, b in pairwise(at_s)} == {30}


async def test_what_is_saved_replays_as_what_was_read(
    recorder: tuple[Recorder, str], looks: list[PodCounters], tmp_path: Path
) -> None:
    saved = tmp_path / "saved.jsonl.gz"
    taken = await fed(recorder[1], save=saved)
    again: list[PodCounters] = []
    feed_files([saved], again.append, pytest.fail)

    assert again == taken == looks


def test_a_scrape_that_is_no_engines_is_not_taken_for_one() -> None:
    (found,) = scrapes([series("up", (1, 1))])
    assert isinstance(found, Scrape)
    with pytest.raises(ValueError, match="shows no vllm: metrics"):
        counters(found.points, pod=found.pod, at_s=found.at_s)
