"""The load generator against a server that misbehaves on purpose."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from local_cluster.engine.language import EASY, HARD, class_of
from local_cluster.engine.traffic import LoadGenerator, Phase, difference
from support.leaping_time import in_leaping_time
from support.waiting import until

Answer = Callable[[list[int], int], web.Response]


def choice(tokens: list[int], reason: str = "length") -> web.Response:
    return web.json_response({"choices": [{"token_ids": tokens, "finish_reason": reason}]})


def right(prompt: list[int], length: int) -> web.Response:
    traffic = class_of(prompt[-1])
    assert traffic is not None
    return choice(list(traffic.walk(prompt[-1], length)))


class Endpoint:
    """Answers as it is told; remembers how many requests were in flight at most."""

    def __init__(self) -> None:
        self.answer: Answer = right
        self.in_flight = 0
        self.most = 0

    async def complete(self, http: web.Request) -> web.Response:
        body: dict[str, Any] = await http.json()
        self.in_flight += 1
        self.most = max(self.most, self.in_flight)
        await asyncio.sleep(0.005)
        self.in_flight -= 1
        return self.answer(body["prompt"], body["max_tokens"])


@asynccontextmanager
async def loaded() -> AsyncIterator[tuple[LoadGenerator, Endpoint]]:
    """A load, and where it goes."""
    endpoint, application = Endpoint(), web.Application()
    application.router.add_post("/v1/completions", endpoint.complete)
    async with (
        TestServer(application, host="127.0.0.1") as server,
        LoadGenerator(str(server.make_url("/")), "pair") as load,
    ):
        yield load, endpoint


async def run(load: LoadGenerator, phase: Phase, requests: int) -> None:
    load.set_phase(phase)
    enough = len(load.results) + requests
    await until(lambda: len(load.results) >= enough, f"{requests} more requests to end")


@in_leaping_time
async def test_right_completions_are_ok() -> None:
    async with loaded() as (load, endpoint):
        await run(load, Phase(EASY, concurrency=3, max_tokens=10), 12)
        assert all(result.ok and result.tokens == 10 for result in load.results)
        assert endpoint.most == 3


@in_leaping_time
async def test_class_and_concurrency_change_on_the_fly() -> None:
    async with loaded() as (load, endpoint):
        await run(load, Phase(EASY, concurrency=1), 3)
        await run(load, Phase(HARD, concurrency=5), 15)
        assert endpoint.most == 5
        endpoint.most = 0
        await run(load, Phase(HARD, concurrency=2), 8)
        await load.stop()
        endpoint.most = 0
        await run(load, Phase(EASY, concurrency=2), 4)
        assert endpoint.most == 2
        assert {result.traffic for result in load.results[4:18]} <= {"easy", "hard"}
        assert load.results[0].traffic == "easy"


@in_leaping_time
async def test_a_mix_has_more_of_the_class_that_is_there_more_often() -> None:
    async with loaded() as (load, _):
        phase = Phase(HARD, concurrency=4, max_tokens=4, mixed_with=(EASY, EASY, EASY))
        await run(load, phase, 40)
        count = Counter(result.traffic for result in load.results)
        assert count["easy"] > count["hard"] > 0
        assert all(result.ok for result in load.results)


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (lambda prompt, length: right(prompt, length - 1), "9 tokens, expected 10"),
        (lambda prompt, length: right(prompt[:-1], length), "token 0 is"),
        (lambda prompt, length: choice([], "abort"), "finished with 'abort'"),  # noqa: ARG005
        (lambda prompt, length: web.Response(status=503, text="draining"), "HTTP 503: draining"),  # noqa: ARG005
        (lambda prompt, length: web.Response(text="{"), "ContentTypeError"),  # noqa: ARG005
    ],
)
@in_leaping_time
async def test_whatever_else_comes_back_is_an_error_in_a_sentence(
    answer: Answer, sentence: str
) -> None:
    async with loaded() as (load, endpoint):
        endpoint.answer = answer
        await run(load, Phase(EASY, concurrency=1, max_tokens=10), 1)
        assert sentence in load.results[0].error


@in_leaping_time
async def test_leaving_lets_requests_in_flight_finish() -> None:
    async with loaded() as (load, endpoint):
        load.set_phase(Phase(EASY, concurrency=4))
        await until(lambda: endpoint.in_flight == 4, "four requests in flight")
        await load.stop()
        assert len(load.results) >= 4
        assert all(result.ok for result in load.results)


@in_leaping_time
async def test_a_summary_counts_what_ended_in_between() -> None:
    async with loaded() as (load, _):
        await run(load, Phase(EASY, concurrency=1, max_tokens=10), 5)
        await load.stop()
        ends = [result.ended_at_s for result in load.results]
        summary = load.summary(ends[1], ends[4])
        assert (summary.requests, summary.failed, summary.tokens) == (3, 0, 30)
        assert summary.tokens_per_second == pytest.approx(30 / (ends[4] - ends[1]))


def test_a_difference_is_named_by_its_place() -> None:
    assert difference((1, 2), (1, 2)) == ""
    assert difference((1, 2), (1, 3)) == "token 1 is 3, expected 2"
    assert difference((1, 2), (1,)) == "1 tokens, expected 2"
