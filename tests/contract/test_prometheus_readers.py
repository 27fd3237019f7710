"""The operator's reader of a Prometheus and the commands' one: the same answers, the same bad ones.

The commands' asks through prometheus-api-client, which as it comes follows redirects, tries again,
prefers a netrc and quotes what it got.
"""

import asyncio
import json
import ssl
import time
from base64 import b64encode
from collections.abc import Sequence
from ipaddress import IPv4Address
from pathlib import Path
from threading import Event
from typing import Protocol

import pytest
from aiohttp import web

from fathom.adapters.http import Room, http_session
from fathom.adapters.prometheus_history import (
    CHUNK_S,
    Access,
    PrometheusHistory,
    Scrape,
    in_a_thread,
    scrapes,
)
from fathom.adapters.prometheus_query import (
    LABEL_PAIRS,
    NO_LABELS,
    PrometheusQuery,
    PrometheusUnreadableError,
    Series,
)
from fathom.cluster.kinds import ObjectKey
from local_cluster.control_plane.credentials import create_credentials
from support import bad_server
from support.bad_server import SECRET, Answer, BadServer, answering, saying
from support.engine_page import FakeEngine
from support.prometheus import running_prometheus
from support.waiting import GUARD_S, until

MOST_BYTES = 1 << 20
SHORT_S = 0.6
"""Length of a time-out that is waited for."""
WAITED_OUT = (bad_server.dripping, bad_server.dripping_headers, bad_server.silent)
EMPTY = b'{"status":"success","data":{"resultType":"matrix","result":[]}}'
NOTHING = saying(EMPTY)
KEY = ObjectKey("llm", "kimi")
POD = "kimi-0a1b2c3d-5f6g7-x8z9q"


class Reader(Protocol):
    async def __call__(
        self,
        url: str,
        until_s: float = CHUNK_S,
        labels: dict[str, str] | None = None,
        *,
        timeout_s: float = GUARD_S,
    ) -> Sequence[Scrape]: ...


async def by_operator(
    url: str,
    until_s: float = CHUNK_S,
    labels: dict[str, str] | None = None,
    *,
    timeout_s: float = GUARD_S,
) -> Sequence[Scrape]:
    series: list[Series] = []
    async with http_session(1) as session:
        query = PrometheusQuery(
            session,
            url,
            timeout_s=timeout_s,
            most_bytes=MOST_BYTES,
            room=Room(MOST_BYTES * 2),
            labels=labels or NO_LABELS,
        )
        for pod, namespace in LABEL_PAIRS:
            patterns = {pod: "kimi-.*", namespace: KEY.namespace}
            series += await query.series(patterns, CHUNK_S, at_s=until_s)
    return scrapes(series)


async def by_commands(
    url: str,
    until_s: float = CHUNK_S,
    labels: dict[str, str] | None = None,
    *,
    access: Access | None = None,
    timeout_s: float = GUARD_S,
) -> Sequence[Scrape]:
    history = PrometheusHistory(
        url,
        access,
        labels=labels or NO_LABELS,
        timeout_s=timeout_s,
        largest_answer_bytes=MOST_BYTES,
    )
    try:
        chunks = history.chunks(KEY, until_s - CHUNK_S, until_s, step_s=0.0)
        return [scrape async for chunk in chunks for scrape in chunk.scrapes]
    finally:
        history.close()


@pytest.fixture(params=[by_operator, by_commands], ids=["operator", "commands"])
def reader(request: pytest.FixtureRequest) -> Reader:
    found: Reader = request.param
    return found


async def why(reading: Reader, url: str, *, timeout_s: float = GUARD_S) -> str:
    with pytest.raises(PrometheusUnreadableError) as failed:
        await reading(url, timeout_s=timeout_s)
    return str(failed.value)


async def test_both_read_the_same_from_a_real_one(tmp_path: Path) -> None:
    engine, labels = FakeEngine(), {"cluster": 'eu "1"\\d.é{}'}

    async def page(_: web.Request) -> web.Response:
        engine.tokens += 10
        return web.Response(text=engine.page())

    app = web.Application()
    app.router.add_get("/metrics", page)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    target = f"127.0.0.1:{runner.addresses[0][1]}"
    ours = {"pod": POD, "namespace": KEY.namespace, **labels}
    other = {**ours, "cluster": "eu '1'"}
    scraped = [
        {"job_name": name, "static_configs": [{"targets": [target], "labels": of}]}
        for name, of in (("ours", ours), ("other", other))
    ]
    async with running_prometheus(scraped, tmp_path) as url:

        async def enough() -> float | None:
            now_s = time.time()
            return now_s if len(await by_operator(url, now_s, labels)) > 3 else None

        until_s = await until(enough, "four scrapes")
        found = [await reading(url, until_s, labels) for reading in (by_operator, by_commands)]
        everything = await by_commands(url, until_s)
    await runner.cleanup()

    assert found[0] == found[1]
    assert len(found[0]) > 3
    assert {each.pod for each in found[0]} == {POD}
    assert len(everything[0].points) < len(found[0]) * len(found[0][0].points)


async def test_an_answer_in_pieces_is_utf_8_whatever_it_says_of_itself() -> None:
    metric = {"__name__": "vllm:x", "pod": POD, "model_name": "modèle"}
    result = [{"metric": metric, "values": [[1, "2"]]}]
    whole = json.dumps({"data": {"result": result}}, ensure_ascii=False).encode()
    half = whole.index("è".encode()) + 1

    async def in_pieces(server: BadServer, writer: asyncio.StreamWriter) -> None:
        head = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n"
        pieces = [b"%x\r\n%b\r\n" % (len(each), each) for each in (whole[:half], whole[half:])]
        await server.send(writer, b"".join([head, *pieces, b"0\r\n\r\n"]))

    async with answering(in_pieces) as server:
        found = [await reading(server.url) for reading in (by_operator, by_commands)]

    assert found[0] == found[1]
    assert [each.points[0].labels for each in found[0]] == [{"model_name": "modèle"}]


@pytest.mark.parametrize(
    ("answer", "cause"),
    [
        (bad_server.endless, "larger than 1048576 bytes"),
        (bad_server.endless_headers, "is not HTTP"),
        (bad_server.endless_line, "is not HTTP"),
        (bad_server.dripping, "no answer within 0.6 s"),
        (bad_server.dripping_headers, "no answer within 0.6 s"),
        (bad_server.silent, "no answer within 0.6 s"),
        (bad_server.looping, "HTTP status 302, and redirects are not followed"),
        (bad_server.bomb, "its answer comes packed"),
        (bad_server.failing, "HTTP status 503"),
        (bad_server.refusing(302), "HTTP status 302, and redirects are not followed"),
        (bad_server.refusing(401), "HTTP status 401"),
        (bad_server.refusing(403), "HTTP status 403"),
        (bad_server.refusing(429), "HTTP status 429"),
        (bad_server.refusing(500), "HTTP status 500"),
        (bad_server.babbling, "is not HTTP"),
        (bad_server.breaking_off, "it broke off in the middle of its answer"),
        (saying(f"<html>{SECRET}".encode()), "its answer is not a Prometheus's"),
        (saying(b"\xff" * (MOST_BYTES // 2)), "its answer is not a Prometheus's"),
        (saying(b"[" * (MOST_BYTES // 2)), "its answer is not a Prometheus's"),
        (saying(f'{{"data":"{SECRET}"}}'.encode()), "its answer is not a Prometheus's"),
        (saying(b'{"data":{"result":[{"metric":{},"values":[[1,"1"]]}]}}'), "not a Prometheus's"),
    ],
)
async def test_a_bad_server_is_left_in_time_and_never_quoted(
    reader: Reader, answer: Answer, cause: str, capfd: pytest.CaptureFixture[str]
) -> None:
    timeout_s = SHORT_S if answer in WAITED_OUT else GUARD_S
    async with answering(answer) as server:
        found = await why(reader, server.url, timeout_s=timeout_s)
        if answer is bad_server.dripping:
            await until(lambda: server.open == 0, "the connection is closed")

    assert found.startswith(f"Prometheus at 127.0.0.1:{server.port} cannot be read: ")
    assert cause in found
    assert SECRET not in found
    assert len(found) < 200
    # Some megabytes are on their way in the buffers of both sides.
    assert server.sent_bytes < MOST_BYTES + (16 << 20)
    assert len(server.asked) <= 1
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("url", "cause"),
    [
        ("http://127.0.0.1:1", "no connection comes about (Connection refused)"),
        ("http://nowhere.invalid", "its name cannot be resolved"),
        ("prometheus:9090", "this is not a URL that can be asked"),
        ("prometheus", "this is not a URL that can be asked"),
        ("http://[", "this is not a URL that can be asked"),
    ],
)
async def test_one_that_cannot_be_reached_is_a_sentence(
    reader: Reader, url: str, cause: str
) -> None:
    assert (await why(reader, url)).endswith(cause)


async def test_a_server_may_close_each_connection_as_the_next_query_comes(reader: Reader) -> None:
    asked: list[bytes] = []

    async def serve(query: asyncio.StreamReader, answer: asyncio.StreamWriter) -> None:
        asked.append(await query.readuntil(b"\r\n\r\n"))
        answer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(EMPTY), EMPTY))
        await query.read(1)
        answer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        await reader(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")

    assert len(asked) == 2


async def test_a_redirect_leads_nowhere(reader: Reader) -> None:
    async with (
        answering(NOTHING) as other,
        answering(bad_server.leading_to(other)) as server,
    ):
        found = await why(reader, server.url)

    assert "HTTP status 307" in found
    assert other.asked == []


async def test_neither_netrc_nor_environment_says_how_it_is_asked(
    reader: Reader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text(f"machine 127.0.0.1 login somebody password {SECRET}\n")
    monkeypatch.setenv("NETRC", str(netrc))
    async with answering(NOTHING) as proxy, answering(NOTHING) as server:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.url)
        monkeypatch.setenv("no_proxy", "")
        monkeypatch.setenv("NO_PROXY", "")
        await reader(server.url)
        without = server.heads[-1]
        await reader(server.url.replace("//", "//ann:open@"))
        by_url = server.heads[-1]

    assert proxy.asked == []
    assert "authorization" not in without
    assert f"authorization: basic {b64encode(b'ann:open').decode().lower()}" in by_url


async def test_headers_are_sent_as_given_and_a_netrc_does_not_go_before_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login somebody password else\n")
    monkeypatch.setenv("NETRC", str(netrc))
    access = Access(headers={"Authorization": f"Bearer {SECRET}", "X-Scope-OrgID": "team-a"})
    async with answering(NOTHING) as server:
        await by_commands(server.url, access=access)

    assert len(server.heads) == 2
    for head in server.heads:
        assert f"authorization: bearer {SECRET}\r\n" in head
        assert "x-scope-orgid: team-a\r\n" in head
    assert SECRET not in repr(access)


async def test_a_proxy_is_asked_where_it_is_named() -> None:
    async with answering(NOTHING) as proxy:
        await by_commands("http://prometheus.invalid/base/", access=Access(proxy=proxy.url))

        async def secure(url: str, *, timeout_s: float) -> Sequence[Scrape]:
            return await by_commands(url, access=Access(proxy=proxy.url), timeout_s=timeout_s)

        proxy.answer = bad_server.refusing(407)
        found = await why(secure, "https://prometheus.invalid")  # type: ignore[arg-type]

    assert proxy.asked[0].startswith("http://prometheus.invalid/base/api/v1/query?query=")
    assert proxy.asked[-1] == "prometheus.invalid:443"
    assert "the proxy (--proxy) does not connect to it" in found
    assert SECRET not in found


async def test_a_certificate_is_held_against_the_ca_that_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = IPv4Address("127.0.0.1")
    made = create_credentials(tmp_path / "pki", cluster="c", address=here, port=1, service=here)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(made.server_certificate, made.server_key)
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(made.ca_certificate))
    async with answering(NOTHING, tls=tls) as server:
        refused = await why(by_commands, server.url)
        by_own = await why(by_operator, server.url)
        asked = list(server.asked)
        await by_commands(server.url, access=Access(ca_file=made.ca_certificate))
        monkeypatch.setenv("SSL_CERT_FILE", str(made.ca_certificate))  # now it is the system's
        await by_commands(server.url)

    assert by_own.endswith("its certificate is not trusted, or is for another name")
    assert refused.endswith("not trusted, or is for another name; name its CA with --ca-file")
    assert asked == []
    assert len(server.asked) == 4


def test_nobody_waits_for_a_thread_that_was_given_up() -> None:
    """A loop waits at its end for what `asyncio.to_thread` began: Ctrl-C would end nothing."""
    ended = Event()

    async def give_up() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await in_a_thread(ended.wait)

    asyncio.run(give_up())
    assert not ended.is_set()
    ended.set()
