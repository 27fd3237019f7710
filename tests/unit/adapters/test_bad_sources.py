"""Who may name a URL, or run a pod, must not stop, fill or lead away the operator."""

import asyncio
import socket
import threading
import tracemalloc
from collections.abc import AsyncIterator
from typing import Any, Protocol

import aiohttp
import pytest

from fathom.adapters.http import Room, http_session
from fathom.adapters.pod_metrics import PodMetrics
from fathom.adapters.ports import MetricsPort, PodEndpoint, Sample, SystemClock
from fathom.adapters.prometheus_metrics import PrometheusMetrics
from support import bad_server
from support.bad_server import SECRET, Answer, BadServer, answering, saying
from support.waiting import GUARD_S, until

MOST_BYTES = 1 << 20
SHORT_S = 0.6
"""Length of a time-out that is waited for."""
WAITED_OUT = (bad_server.dripping, bad_server.silent)
"""All others show by themselves that they are no good: no time-out has to help."""


class Reader(Protocol):
    def __call__(
        self, session: aiohttp.ClientSession, server: BadServer, *, timeout_s: float = GUARD_S
    ) -> MetricsPort: ...


def prometheus(
    session: aiohttp.ClientSession,
    server: BadServer,
    room: Room | None = None,
    *,
    timeout_s: float = GUARD_S,
) -> PrometheusMetrics:
    return PrometheusMetrics(
        session,
        server.url,
        timeout_s=timeout_s,
        largest_answer_bytes=MOST_BYTES,
        looks_at_once=1,
        room=room,
    )


def pods(session: aiohttp.ClientSession, _: BadServer, *, timeout_s: float = GUARD_S) -> PodMetrics:
    return PodMetrics(
        session,
        SystemClock(),
        timeout_s=timeout_s,
        connect_s=timeout_s,
        largest_page_bytes=MOST_BYTES,
        concurrency=1,
    )


@pytest.fixture(params=[prometheus, pods], ids=["prometheus", "pods"])
def reader(request: pytest.FixtureRequest) -> Reader:
    made: Reader = request.param
    return made


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with http_session(64) as made:
        yield made


def at(server: BadServer, *names: str) -> list[PodEndpoint]:
    return [
        PodEndpoint(namespace="llm", pod=name, ip="127.0.0.1", port=server.port) for name in names
    ]


def why(sample: Sample) -> str:
    assert sample.counters == ()
    (failure,) = sample.failures
    assert failure.pod == "p"
    return failure.cause


@pytest.mark.parametrize(
    ("answer", "cause"),
    [
        (bad_server.endless, "larger than 1048576 bytes"),
        (bad_server.endless_headers, "is not HTTP"),
        (bad_server.endless_line, "is not HTTP"),
        (bad_server.dripping, "no answer within 0.6 s"),
        (bad_server.silent, "no answer within 0.6 s"),
        (bad_server.looping, "HTTP status 302, and redirects are not followed"),
        (bad_server.bomb, "its answer comes packed"),
        (bad_server.failing, "it answers with HTTP status 503"),
        (bad_server.babbling, "is not HTTP"),
        (bad_server.breaking_off, "it broke off"),
        (saying(f"<html>{SECRET}".encode()), ""),
        (saying(f"vllm:generation_tokens_total {SECRET}\n".encode()), ""),
        (saying(f'fathom_steps_total{{{SECRET}="{SECRET}"}} 1\n'.encode()), ""),
        (saying(f'{{"data":{{"result":[{{"metric":"{SECRET}"}}]}}}}'.encode()), ""),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
async def test_a_bad_server_is_left_in_time_and_never_quoted(
    reader: Reader, session: aiohttp.ClientSession, answer: Answer, cause: str
) -> None:
    timeout_s = SHORT_S if answer in WAITED_OUT else GUARD_S
    async with answering(answer) as server:
        source = reader(session, server, timeout_s=timeout_s)
        found = why(await source.sample(at(server, "p")))

    assert cause in found
    assert SECRET not in found
    assert len(found) < 200
    # Some megabytes are on their way in the buffers of both sides.
    assert server.sent_bytes < MOST_BYTES + (16 << 20)
    assert len(server.asked) <= 1


async def test_a_redirect_leads_nowhere(reader: Reader, session: aiohttp.ClientSession) -> None:
    async with (
        answering(bad_server.failing) as other,
        answering(bad_server.leading_to(other)) as server,
    ):
        found = why(await reader(session, server).sample(at(server, "p")))

    assert "HTTP status 307" in found
    assert other.asked == []


async def test_a_prometheus_is_named_by_its_host_alone(session: aiohttp.ClientSession) -> None:
    async with answering(bad_server.failing) as server:
        server.url = f"http://user:{SECRET}@127.0.0.1:{server.port}/{SECRET}"
        found = why(await prometheus(session, server).sample(at(server, "p")))

    assert found.startswith(f"Prometheus at 127.0.0.1:{server.port} cannot be read: ")
    assert SECRET not in found


@pytest.mark.parametrize("host", ["a..b", f"{'a' * 64}.example.com"])
async def test_what_is_no_name_is_called_none(session: aiohttp.ClientSession, host: str) -> None:
    pod = PodEndpoint(namespace="llm", pod="p", ip="127.0.0.1", port=1)
    sample = await PrometheusMetrics(session, f"http://{host}").sample([pod])
    assert why(sample).endswith("its name cannot be resolved")


async def test_a_look_over_many_pods_takes_no_longer_than_one(
    session: aiohttp.ClientSession,
) -> None:
    names = [f"pod-{i}" for i in range(40)]
    async with answering(bad_server.dripping) as server:
        source = prometheus(session, server, timeout_s=SHORT_S)
        sample = await source.sample(at(server, *names))

    assert [each.pod for each in sample.failures] == names
    # They are asked for in several questions, and the first one takes all the time.
    assert len(server.asked) <= 1


async def test_a_source_that_is_busy_says_so_and_is_not_asked_more(
    session: aiohttp.ClientSession,
) -> None:
    async with answering(bad_server.dripping) as server:
        source = prometheus(session, server, timeout_s=SHORT_S)
        samples = await asyncio.gather(*(source.sample(at(server, "p")) for _ in range(20)))

    causes = [why(sample) for sample in samples]
    assert any("no answer within 0.6 s" in cause for cause in causes)
    assert any("still busy with earlier questions after 0.6 s" in cause for cause in causes)
    assert len(server.asked) < len(samples)


async def test_slow_sources_hold_up_no_other(session: aiohttp.ClientSession) -> None:
    room = Room(4 * MOST_BYTES)
    good = saying(b'{"data":{"result":[]}}')
    async with answering(bad_server.dripping) as slow, answering(good) as quick:
        held = [
            asyncio.create_task(prometheus(session, slow, room).sample(at(slow, "p")))
            for _ in range(20)
        ]
        while slow.open < len(held):
            await asyncio.sleep(0)
        found = why(await prometheus(session, quick, room).sample(at(quick, "p")))
        slow_still = [each.done() for each in held]
        slow.over.set()
        await asyncio.gather(*held)

    assert "has no vllm: metrics of it" in found
    assert not any(slow_still)


def reads(session: aiohttp.ClientSession, url: str) -> PrometheusMetrics:
    return PrometheusMetrics(session, url, timeout_s=GUARD_S)


async def test_names_that_nobody_resolves_hold_up_no_other(
    session: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    over = threading.Event()

    def look_up(host: str, port: int, *_: object, **__: object) -> list[Any]:
        asked.append(host)
        if host != "quick":
            over.wait()
        return [(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", ("127.0.0.1", port))]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    names = [f"hangs-{index}" for index in range(40)]
    pod = PodEndpoint(namespace="llm", pod="p", ip="127.0.0.1", port=1)
    async with answering(saying(b'{"data":{"result":[]}}')) as server:
        held = [
            asyncio.create_task(reads(session, f"http://{name}:1").sample([pod])) for name in names
        ]
        try:
            await until(lambda: len(asked) == len(names), "all names are looked up")
            url = f"http://quick:{server.port}"
            found = why(await reads(session, url).sample([pod]))
            # As one reads the files of a login.
            assert await asyncio.to_thread(len, "a thread is free") == 16
            slow_still = [each.done() for each in held]
        finally:
            over.set()
        await asyncio.gather(*held)

    assert "has no vllm: metrics of it" in found
    assert not any(slow_still)


async def test_slow_pods_of_one_resource_hold_up_no_other(session: aiohttp.ClientSession) -> None:
    page = b"vllm:generation_tokens_total 5\n"
    async with answering(bad_server.silent) as slow, answering(saying(page)) as quick:
        source = pods(session, slow)
        held = asyncio.create_task(source.sample(at(slow, "a", "b")))
        while not slow.asked:
            await asyncio.sleep(0)
        sample = await source.sample(at(quick, "p"))
        assert not held.done()
        slow.over.set()
        await held

    assert [each.pod for each in sample.counters] == ["p"]


async def test_of_many_large_answers_at_once_the_largest_goes(
    session: aiohttp.ClientSession,
) -> None:
    """Each is within its own bound; all of them together are not."""
    room = Room(MOST_BYTES)
    piece = bytes(MOST_BYTES * 3 // 4)
    release = asyncio.Event()

    async def holding(server: BadServer, writer: asyncio.StreamWriter) -> None:
        head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (len(piece) + 1)
        await server.send(writer, head + piece)
        await release.wait()

    small = saying(b'{"data":{"result":[]}}' + b" " * (MOST_BYTES // 2))
    async with answering(holding) as large, answering(small) as modest:
        held = asyncio.create_task(prometheus(session, large, room).sample(at(large, "p")))
        while large.sent_bytes < len(piece):
            await asyncio.sleep(0)
        found = why(await prometheus(session, modest, room).sample(at(modest, "p")))
        release.set()
        dropped = why(await held)

    assert "has no vllm: metrics of it" in found
    assert "broke off" in dropped or "this was the most" in dropped


def test_a_room_drops_the_largest_and_counts_what_is_left() -> None:
    room = Room(10)
    large, small = room.open(), room.open()
    room.fill(large, b"1234567")
    room.fill(small, b"1234")

    assert (bytes(large), bytes(small)) == (b"", b"1234")
    with pytest.raises(Exception, match="this was the most"):
        room.fill(large, b"1")
    room.fill(small, b"123456")
    with pytest.raises(Exception, match="this was the most"):
        room.fill(small, b"7")
    room.close(small)
    room.close(large)
    room.fill(room.open(), b"1234567890")


@pytest.mark.parametrize(
    "body",
    [
        b'{"data":{"result":[' + b"{}," * (1 << 17) + b"{}]}}",
        b'{"data":{"result":[{"metric":{"pod":"p"},"values":[' + b"[],," * (1 << 16) + b"[]]}]}}",
        b"[" * (1 << 19),
        b'{"data":{"result":[{"metric":{'
        + b'"a":1,' * (1 << 16)
        + b'"pod":"p"},"values":[[1,1]]}]}}',
    ],
    ids=["series", "values", "depth", "labels"],
)
async def test_nonsense_costs_no_more_memory_than_sense(
    session: aiohttp.ClientSession, body: bytes
) -> None:
    """A library that lists all that is wrong made gigabytes of complaints from megabytes."""
    async with answering(saying(body)) as server:
        source = prometheus(session, server)
        tracemalloc.start()
        found = why(await source.sample(at(server, "p")))
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()

    assert "its answer is not a Prometheus's" in found
    assert most < 60 * len(body)
