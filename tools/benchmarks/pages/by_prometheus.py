"""What a pod's look takes by a real Prometheus: its last scrape alone, and all of the lookback.

Four scrapes a second stand for one in five seconds: a lookback of 8 s holds as many as one of 150 s
would.
"""

import asyncio
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from pydantic import JsonValue

from benchmarks.pages.figures import PrometheusCost
from fathom.adapters.exposition import counters
from fathom.adapters.http import Room, http_session
from fathom.adapters.ports import PodEndpoint
from fathom.adapters.prometheus_metrics import (
    LARGEST_ANSWER_BYTES,
    PrometheusMetrics,
    newest_scrape,
)
from fathom.adapters.prometheus_query import PrometheusQuery, any_of
from fathom.measurement.counters import PodCounters
from local_cluster.errors import LocalClusterError
from local_cluster.prometheus import prometheus_process

_NAMESPACE: Final = "llm"
_PODS: Final = tuple(f"kimi-0a1b2c3d-5f6g7-x8z{number}q" for number in range(4))
_SCRAPE_MS: Final = 250
_LOOKBACK_SECONDS: Final = 8
_PODS_TOGETHER: Final = 2
"""As many as fit an answer with all of the lookback."""
_ROUNDS: Final = 5
_READY_SECONDS: Final = 30.0
_POLL_SECONDS: Final = 0.1


def prometheus_cost(port: int) -> PrometheusCost:
    """Let a Prometheus scrape a page for as long as the lookback, and read it in both ways.

    Args:
        port: on loopback, where the page is shown.

    Raises:
        LocalClusterError: there is no Prometheus, it does not start, or both ways do not agree.
    """
    targets: list[JsonValue] = [
        {"targets": [f"127.0.0.1:{port}"], "labels": {"namespace": _NAMESPACE, "pod": pod}}
        for pod in _PODS
    ]
    job: dict[str, JsonValue] = {"job_name": "vllm", "static_configs": targets}
    with (
        tempfile.TemporaryDirectory(prefix="fathom-bench-pages-") as folder,
        prometheus_process(_SCRAPE_MS, [job], Path(folder)) as url,
    ):
        return asyncio.run(_both_ways(url))


class _CountedRoom(Room):
    """Counts the bytes of answers."""

    total = 0

    def fill(self, body: bytearray, chunk: bytes) -> None:
        self.total += len(chunk)
        super().fill(body, chunk)


async def _both_ways(url: str) -> PrometheusCost:
    room = _CountedRoom(8 * LARGEST_ANSWER_BYTES)
    async with http_session(1) as session:
        query = PrometheusQuery(
            *(session, url),
            timeout_s=_READY_SECONDS,
            most_bytes=8 * LARGEST_ANSWER_BYTES,
            room=room,
        )
        metrics = PrometheusMetrics(session, url, lookback_s=_LOOKBACK_SECONDS, room=room)
        pods = [PodEndpoint(namespace=_NAMESPACE, pod=pod, ip="127.0.0.1", port=1) for pod in _PODS]
        await _until_scraped(metrics, pods)
        took_ms = {"whole": 0.0, "last": 0.0}
        bytes_read = {"whole": 0, "last": 0}
        for _ in range(_ROUNDS):
            for way in took_ms:
                began_at, before = time.thread_time(), room.total
                if way == "whole":
                    found = await _whole_lookback(query)
                else:
                    found = list((await metrics.sample(pods)).counters)
                took_ms[way] += (time.thread_time() - began_at) * 1000
                bytes_read[way] += room.total - before
                if sorted(each.pod for each in found) != sorted(_PODS):
                    raise LocalClusterError("Prometheus does not tell of every pod.")
    looks = _ROUNDS * len(_PODS)
    return PrometheusCost(
        whole_ms=took_ms["whole"] / looks,
        whole_kib=bytes_read["whole"] / looks / 1024,
        last_ms=took_ms["last"] / looks,
        last_kib=bytes_read["last"] / looks / 1024,
    )


async def _whole_lookback(query: PrometheusQuery) -> list[PodCounters]:
    found = []
    for start in range(0, len(_PODS), _PODS_TOGETHER):
        named = _PODS[start : start + _PODS_TOGETHER]
        patterns = {"namespace": any_of([_NAMESPACE]), "pod": any_of(named)}
        series = await query.series(patterns, _LOOKBACK_SECONDS)
        for pod in named:
            at_s, points = newest_scrape([each for each in series if each.pod == pod])
            found.append(counters(points, pod=pod, at_s=at_s))
    return found


async def _until_scraped(metrics: PrometheusMetrics, pods: Sequence[PodEndpoint]) -> None:
    """Until the whole lookback is full of scrapes."""
    deadline_s = time.monotonic() + _READY_SECONDS
    while len((await metrics.sample(pods)).counters) < len(pods):
        if time.monotonic() > deadline_s:
            raise LocalClusterError(f"Prometheus has no page within {_READY_SECONDS:g} s.")
        await asyncio.sleep(_POLL_SECONDS)
    await asyncio.sleep(_LOOKBACK_SECONDS)
