"""The engine's completions over HTTP, on loopback."""

import asyncio
import tracemalloc
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from fathom.adapters.completions import LARGEST_ANSWER_BYTES, EngineCompletions
from fathom.adapters.ports import PodEndpoint
from fathom.quality.comparison import Completion, CompletionRequest, Unanswered
from support.waiting import GUARD_S

ANSWER: dict[str, Any] = {
    "id": "cmpl-1",
    "object": "text_completion",
    "choices": [
        {
            "index": 0,
            "text": " is lighter",
            "finish_reason": "length",
            "token_ids": [11, 12],
            "prompt_token_ids": [1, 2, 3],
            "logprobs": None,
        }
    ],
    "usage": {"prompt_tokens": 3},
}
PROSE = CompletionRequest("Ice floats because it", 64)


@dataclass
class Engine:
    """Answers what the test says, and remembers what it was asked."""

    answer: Any = field(default_factory=lambda: ANSWER)
    status: int = 200
    hangs: bool = False
    over: asyncio.Event = field(default_factory=asyncio.Event)
    """Ends what hangs."""
    asked: list[dict[str, Any]] = field(default_factory=list)
    pod: PodEndpoint = field(
        default_factory=lambda: PodEndpoint(namespace="llm", pod="pod-a", ip="", port=0)
    )

    async def complete(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(await request.json())
        if self.hangs:
            await self.over.wait()
        if isinstance(self.answer, str):
            return web.Response(text=self.answer, status=self.status)
        return web.json_response(self.answer, status=self.status)


@pytest.fixture
async def engine() -> AsyncIterator[Engine]:
    made = Engine()
    app = web.Application()
    app.router.add_post("/v1/completions", made.complete)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    made.pod = PodEndpoint(
        namespace="llm", pod="pod-a", ip="127.0.0.1", port=int(runner.addresses[0][1])
    )
    yield made
    made.over.set()
    await runner.cleanup()


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as made:
        yield made


async def asked(
    engine: Engine,
    session: aiohttp.ClientSession,
    request: CompletionRequest = PROSE,
    timeout_s: float = GUARD_S,
) -> Completion | Unanswered:
    completions = EngineCompletions(session, timeout_s=timeout_s)
    return await completions.complete(engine.pod, "kimi", request)


async def test_a_greedy_completion_with_its_tokens(
    engine: Engine, session: aiohttp.ClientSession
) -> None:
    found = await asked(engine, session)

    assert found == Completion(token_ids=(11, 12), text=" is lighter", prompt_token_ids=(1, 2, 3))
    assert engine.asked == [
        {
            "model": "kimi",
            "prompt": "Ice floats because it",
            "max_tokens": 64,
            "temperature": 0,
            "repetition_penalty": 1,
            "return_token_ids": True,
        }
    ]


async def test_the_first_tokens_candidates_by_id(
    engine: Engine, session: aiohttp.ClientSession
) -> None:
    choice = ANSWER["choices"][0]
    logprobs = {
        "tokens": ["token_id:11", "token_id:12"],
        "token_logprobs": [-0.5, -0.1],
        "top_logprobs": [{"token_id:11": -0.5, "token_id:7": -0.75}, {"token_id:12": -0.1}],
    }
    engine.answer = {**ANSWER, "choices": [{**choice, "logprobs": logprobs}]}

    found = await asked(engine, session, CompletionRequest((1, 2, 3), 1, likeliest=5))

    assert isinstance(found, Completion)
    assert found.logprobs == {11: -0.5, 7: -0.75}
    (body,) = engine.asked
    assert (body["prompt"], body["logprobs"], body["max_tokens"]) == ([1, 2, 3], 5, 1)
    assert body["return_tokens_as_token_ids"] is True


async def test_an_engine_that_tells_no_prompt_tokens(
    engine: Engine, session: aiohttp.ClientSession
) -> None:
    engine.answer = {"choices": [{"text": "x", "token_ids": [4]}]}

    assert await asked(engine, session) == Completion(token_ids=(4,), text="x")


@pytest.mark.parametrize(
    ("status", "answer", "why"),
    [
        (401, {"error": "Unauthorized"}, "answers 401: it asks for an API key"),
        (404, {"error": "The model `kimi` does not exist."}, "answers with HTTP status 404"),
        (200, "<html>", "does not answer as vLLM does"),
        (200, {"choices": []}, "does not answer as vLLM does"),
        (200, {"choices": [{"text": "x", "token_ids": None}]}, "whose completions hold token ids"),
        (200, "x" * (LARGEST_ANSWER_BYTES + 1), "does not answer as vLLM does"),
        (307, "elsewhere", "HTTP status 307, and redirects are not followed"),
    ],
    ids=["key", "model", "no JSON", "no choice", "no token ids", "too large", "redirect"],
)
async def test_what_is_no_completion_is_a_sentence(
    engine: Engine, session: aiohttp.ClientSession, status: int, answer: Any, why: str
) -> None:
    engine.status, engine.answer = status, answer

    found = await asked(engine, session)

    assert isinstance(found, Unanswered)
    assert found.sentence.startswith("Pod llm/pod-a at http://127.0.0.1:")
    assert why in found.sentence
    assert len(found.sentence) < 400
    assert not any(word in found.sentence for word in ("does not exist", "elsewhere"))


async def test_nonsense_costs_no_more_memory_than_sense(
    engine: Engine, session: aiohttp.ClientSession
) -> None:
    engine.answer = '{"choices":[' + "{}," * (1 << 17) + "{}]}"
    tracemalloc.start()
    found = await asked(engine, session)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert isinstance(found, Unanswered)
    assert most < 60 * len(engine.answer)


async def test_an_engine_that_hangs_is_left(engine: Engine, session: aiohttp.ClientSession) -> None:
    engine.hangs = True

    found = await asked(engine, session, timeout_s=0.1)

    assert isinstance(found, Unanswered)
    assert found.sentence.endswith("did not answer within 0.1 s.")


async def test_an_engine_that_is_gone(engine: Engine, session: aiohttp.ClientSession) -> None:
    engine.pod = PodEndpoint(namespace="llm", pod="pod-a", ip="127.0.0.1", port=1)

    found = await asked(engine, session)

    assert isinstance(found, Unanswered)
    assert "cannot be asked" in found.sentence
