"""Processor times of one pod's look. Its server is another thread, whose time is its own."""

import asyncio
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Final, Self

import aiohttp

from benchmarks.pages.by_prometheus import prometheus_cost
from benchmarks.pages.figures import PageCost, PrometheusCost
from benchmarks.pages.page import ShownEngine
from benchmarks.pages.reference import read_by_library
from fathom.adapters.http import http_session, whole_answer
from fathom.adapters.metrics_page import PageReader
from fathom.adapters.pod_metrics import LARGEST_PAGE_BYTES, TIMEOUT_S, PodMetrics
from fathom.adapters.ports import PodEndpoint, SystemClock
from local_cluster.errors import LocalClusterError

_ROUNDS: Final = 15
_PAGES: Final = 20
"""Pages of a round."""
_PODS: Final = 800
_MODEL: Final = "organisation/model-of-some-size-instruct"


def page_costs() -> tuple[PrometheusCost, PageCost]:
    """Measure both; half a minute.

    Raises:
        LocalClusterError: a page was read in two ways to two ends, or not at all, or there is no
            Prometheus.
    """
    with tempfile.TemporaryDirectory() as folder:
        engine = ShownEngine(_MODEL, Path(folder))
        first, second, page = engine.page(), engine.page_after_work(), engine.page_after_work()
    reader = PageReader()
    for earlier in (first, second):
        reader.read(earlier, pod="p", at_s=0)
    if reader.read(page, pod="p", at_s=0) != read_by_library(page, "p", at_s=0):
        raise LocalClusterError("The page says one thing to Fathom and another to the library.")
    ways: dict[str, Callable[[], object]] = {
        "library": lambda: read_by_library(page, "p", at_s=0),
        "first": lambda: PageReader().read(page, pod="p", at_s=0),
        "known": lambda: reader.read(page, pod="p", at_s=0),
    }
    took: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(_ROUNDS):  # in turn, so that what else the machine does is the same for all
        for way, read in ways.items():
            took[way].append(_took_ms(read))
    with _Served(first) as server:
        fetch_ms, changed_ms, look_ms = asyncio.run(_over_http(server, (second, page)))
        prometheus = prometheus_cost(server.port)
    return prometheus, PageCost(
        page_bytes=len(page),
        series=sum(not line.startswith(b"#") for line in page.splitlines()),
        library_ms=median(took["library"]),
        first_ms=median(took["first"]),
        known_ms=median(took["known"]),
        fetch_ms=fetch_ms,
        changed_ms=changed_ms,
        look_ms=look_ms,
    )


def _took_ms(read: Callable[[], object]) -> float:
    began_at = time.thread_time()
    for _ in range(_PAGES):
        read()
    return (time.thread_time() - began_at) / _PAGES * 1000


async def _over_http(server: "_Served", pages: Sequence[bytes]) -> tuple[float, float, float]:
    """A page fetched; fetched and read where its lines are new; and where they are known."""
    pods = [
        PodEndpoint(namespace="llm", pod=f"pod-{at}", ip="127.0.0.1", port=server.port)
        for at in range(_PODS)
    ]
    async with http_session(512) as session:
        metrics = PodMetrics(session, SystemClock())
        kept = await metrics.sample(pods)
        failures = [*kept.failures]
        took_s: list[float] = []
        for page in pages:
            server.page = page
            began_at = time.thread_time()
            # As in the operator, what was read before is kept until then.
            kept = await metrics.sample(pods)
            took_s.append(time.thread_time() - began_at)
            failures += kept.failures
        began_at = time.thread_time()
        for pod in pods:
            await _fetch(session, pod)
        took_s.insert(0, time.thread_time() - began_at)
    for failure in failures:
        raise LocalClusterError(f"{failure.cause}.")
    fetch_ms, changed_ms, look_ms = (each / _PODS * 1000 for each in took_s)
    return fetch_ms, changed_ms, look_ms


async def _fetch(session: aiohttp.ClientSession, pod: PodEndpoint) -> bytes:
    return await whole_answer(
        session, pod.url("/metrics"), most_bytes=LARGEST_PAGE_BYTES, timeout_s=TIMEOUT_S
    )


class _Served:
    """A server of a page, on a port of its own, in a thread of its own."""

    def __init__(self, page: bytes) -> None:
        self.page = page
        self.port = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)

    def __enter__(self) -> Self:
        self._thread.start()
        starting = asyncio.start_server(self._answer, "127.0.0.1", 0, backlog=512)
        self._server = asyncio.run_coroutine_threadsafe(starting, self._loop).result()
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._server.close)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        # Closed, as it will be when the next look comes: vLLM's server waits five seconds for one.
        head = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
        writer.write(head % len(self.page) + self.page)
        await writer.drain()
        writer.close()
