"""`fathom traffic`: what it sends, when it ends, what it says. For real: tests/e2e."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import typer
from aiohttp import web
from aiohttp.test_utils import TestServer
from kubernetes.aio.client import Configuration
from typer.testing import CliRunner

from fathom.adapters import kube_config
from fathom.adapters.completions import (
    Ask,
    Load,
    RequestResult,
    TrafficSummary,
    at_address,
    through_api_server,
)
from fathom.adapters.http import http_session
from fathom.api.status import Condition, SpeculativeDeploymentStatus
from fathom.cli.main import app
from fathom.cli.traffic import (
    line_of,
    model_of,
    report_of,
    sent,
    summary_in_words,
)
from fathom.cluster.kinds import ObjectKey
from fathom.page.subject import Subject
from fathom.quality.comparison import Unanswered
from fathom.tuning.learned_state import TuningState
from manifest_samples import resource
from support.leaping_time import in_leaping_time
from support.waiting import until

KEY = ObjectKey("llm", "kimi")
PROXIED = "/api/v1/namespaces/llm/services/kimi:8000/proxy/v1/completions"
DIRECT = "/v1/completions"
Handler = Callable[[web.Request], web.Response]


def result(tokens: int = 10, error: str = "", *, to_s: float = 2.0) -> RequestResult:
    return RequestResult(started_at_s=0.0, ended_at_s=to_s, tokens=tokens, error=error)


class Engine:
    """Counts how many requests it has at a time, and when they began."""

    def __init__(self, answer: RequestResult, seconds: float = 1.0) -> None:
        self.answer, self.seconds = answer, seconds
        self.now = self.most = 0
        self.began_s: list[float] = []

    async def ask(self) -> RequestResult:
        self.began_s.append(asyncio.get_running_loop().time())
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(self.seconds)
        self.now -= 1
        return self.answer


@in_leaping_time
async def test_so_many_are_in_flight_and_no_more() -> None:
    engine = Engine(result())
    load = Load(engine.ask)

    load.keep(3)
    await until(lambda: len(load.results) >= 6, "six answers")
    load.keep(5)
    await until(lambda: engine.now == 5, "five in flight")
    await load.stop()

    assert engine.most == 5
    assert engine.now == 0


@in_leaping_time
async def test_no_more_begin_in_a_second_than_the_rate_allows() -> None:
    clock = asyncio.get_running_loop().time
    engine = Engine(result(), seconds=0.1)
    load = Load(engine.ask, per_second=2, clock=clock)

    load.keep(4)
    await until(lambda: len(load.results) >= 6, "six answers")
    await load.stop()

    gaps = [b - a for a, b in zip(engine.began_s, engine.began_s[1:], strict=False)]
    assert min(gaps) >= 0.49


@in_leaping_time
async def test_one_that_fails_is_not_sent_again_at_once() -> None:
    engine = Engine(result(0, "no"), seconds=0.0)
    load = Load(engine.ask)

    load.keep(1)
    await until(lambda: len(load.results) >= 3, "three failures")
    await load.stop()

    assert min(b - a for a, b in zip(engine.began_s, engine.began_s[1:], strict=False)) >= 0.09


async def test_it_ends_and_waits_for_what_is_in_flight() -> None:
    engine = Engine(result(), seconds=0.05)

    results, seconds = await sent(Load(engine.ask), 2, 0.01)

    assert len(results) == 2
    assert seconds >= 0.05


@asynccontextmanager
async def serving(path: str, answer: Handler) -> AsyncIterator[str]:
    application = web.Application()

    async def handle(request: web.Request) -> web.Response:
        await request.read()
        return answer(request)

    application.router.add_post(path, handle)
    async with TestServer(application, host="127.0.0.1") as server:
        yield str(server.make_url("/")).rstrip("/")


@asynccontextmanager
async def asking(url: str, path: str, key: str = "") -> AsyncIterator[Ask]:
    if path == PROXIED:
        async with kube_config.client(Configuration(host=url), redirected=False) as api:
            yield through_api_server(api, "llm", "kimi")
    else:
        async with http_session(1) as session:
            yield at_address(session, url, key)


def told(tokens: int) -> web.Response:
    return web.json_response({"choices": [], "usage": {"completion_tokens": tokens}})


@pytest.mark.parametrize("path", [PROXIED, DIRECT])
async def test_a_model_is_asked_for_a_text_and_its_tokens_are_counted(path: str) -> None:
    bodies: list[Any] = []

    def answer(request: web.Request) -> web.Response:
        body = request._read_bytes
        bodies.append(json.loads(body or b""))
        return told(7)

    async with serving(path, answer) as url, asking(url, path) as ask:
        assert await ask("kimi-k2", "Why?", 16) == 7

    assert bodies == [{"model": "kimi-k2", "prompt": "Why?", "max_tokens": 16, "temperature": 0}]


async def test_an_api_key_goes_to_the_address_alone() -> None:
    keys: list[str | None] = []

    def answer(request: web.Request) -> web.Response:
        keys.append(request.headers.get("Authorization"))
        return told(1)

    async with serving(DIRECT, answer) as url:
        for key in ("sesame", ""):
            async with asking(url, DIRECT, key) as ask:
                await ask("m", "p", 1)

    assert keys == ["Bearer sesame", None]


@pytest.mark.parametrize(
    ("path", "answer", "why"),
    [
        (
            PROXIED,
            lambda _: web.json_response({"kind": "Status", "code": 403}, status=403),
            "The API server does not let you: it takes the right to create services/proxy.",
        ),
        (
            DIRECT,
            lambda _: web.Response(status=401),
            "answers 401: it asks for an API key. Give --url and --api-key-file.",
        ),
        (PROXIED, lambda _: web.Response(status=503, text="SECRET"), "HTTP status 503"),
        (DIRECT, lambda _: web.json_response({"choices": []}), "does not answer as vLLM does"),
        (DIRECT, lambda _: web.Response(status=307, headers={"Location": "/"}), "status 307"),
    ],
)
async def test_what_is_no_answer_is_a_sentence(path: str, answer: Handler, why: str) -> None:
    async with serving(path, answer) as url, asking(url, path) as ask:
        found = await ask("m", "p", 1)

    assert isinstance(found, Unanswered)
    assert why in found.sentence
    assert "SECRET" not in found.sentence


def live(ready: str, changes: dict[str, Any] | None = None) -> Subject:
    condition = Condition(
        type="Ready",
        status=ready or "True",
        reason="Starting",
        message="0 of 1 are up.",
        last_transition_time="2026-01-01T00:00:00Z",
    )
    return Subject(
        key=ObjectKey("llm", "kimi"),
        resource=resource(changes),
        status=SpeculativeDeploymentStatus(conditions=(condition,) if ready else ()),
        document=None,
        state=TuningState(),
    )


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (None, "There is no SpeculativeDeployment llm/kimi."),
        (
            live("False"),
            "llm/kimi is not ready, so nothing was sent. Starting: 0 of 1 are up.",
        ),
        (live("Unknown"), "llm/kimi is not ready"),
        (live(""), "no operator has reported on it. Wait for it with `kubectl -n llm wait sd/kimi"),
    ],
)
def test_what_is_not_ready_gets_nothing(
    found: Subject | None, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(typer.Exit) as ended:
        model_of(KEY, found)

    assert ended.value.exit_code == 2
    assert why in capsys.readouterr().err


def test_a_model_is_called_as_it_is_served() -> None:
    assert model_of(KEY, live("True")) == "nvidia/Kimi-K2.6-NVFP4"
    assert model_of(KEY, live("True", {"model.servedName": "kimi"})) == "kimi"


def test_a_key_needs_an_address() -> None:
    ran = CliRunner().invoke(app, ["traffic", "kimi", "-n", "llm", "--api-key-file", "k"])

    assert ran.exit_code == 2
    assert "The API server does not pass on an API key: give --url" in ran.stderr


def test_a_key_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    words = ["--url", "http://127.0.0.1:1", "--api-key-file", str(tmp_path / "none")]
    ran = CliRunner().invoke(app, ["traffic", "kimi", "-n", "llm", *words])

    assert ran.exit_code == 2
    assert "none cannot be read: " in ran.stderr


def test_some_seconds_are_one_line() -> None:
    well = TrafficSummary(requests=85, failed=0, tokens=8160, seconds=10.0)
    badly = TrafficSummary(requests=1, failed=1, tokens=0, seconds=10.0)

    assert line_of(well, 20.0, "") == "20 s: 816 tokens per second, 85 requests, none failed"
    assert line_of(badly, 9.6, "It is down.") == (
        "10 s: 0 tokens per second, 1 request, 1 failed, such as: It is down."
    )


def test_the_summary_counts_whole_requests_and_times_those_that_were_answered() -> None:
    results = [result(), result(to_s=4.0), result(30, to_s=1.0), result(0, "It is down.", to_s=9.0)]

    report = report_of(KEY, results, 10.0)

    assert report.model_dump() == {
        "api_version": "cli.fathom.dev/v1alpha1",
        "kind": "TrafficReport",
        "namespace": "llm",
        "name": "kimi",
        "seconds": 10.0,
        "requests": 4,
        "failed": 1,
        "first_error": "It is down.",
        "tokens": 50,
        "tokens_per_second": 5.0,
        "median_request_seconds": 2.0,
    }
    assert summary_in_words(report) == (
        "4 requests in 10 s, 1 failed. The first: It is down. 5 tokens per second. "
        "Half of them took at most 2.00 s."
    )


def test_where_nothing_was_answered_no_time_is_said() -> None:
    report = report_of(KEY, [], 3.0)

    assert report.median_request_seconds is None
    assert summary_in_words(report) == "0 requests in 3 s, none failed. 0 tokens per second."
