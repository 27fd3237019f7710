"""Completions over vLLM's OpenAI-compatible API: one at a time, or a load of them.

Fields as in `vllm/entrypoints/openai/completion/protocol.py`.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated, Final
from urllib.parse import quote

import aiohttp
from kubernetes.aio.client import ApiClient
from kubernetes.aio.client.exceptions import ApiException
from pydantic import BaseModel, ConfigDict, FailFast, Field, JsonValue, ValidationError

from fathom.adapters.http import BadAnswerError, bearer, cause_of, first_bytes, refusal
from fathom.adapters.pod_metrics import is_of_api_server
from fathom.adapters.ports import PodEndpoint
from fathom.engine.flags import HTTP_PORT
from fathom.quality.comparison import Completion, CompletionRequest, Unanswered

TIMEOUT_S: Final = 120.0
"""A busy engine has a queue, and Model Runner V1 compiles a kernel for its first logprobs."""
LARGEST_ANSWER_BYTES: Final = 1024 * 1024
"""An answer of 64 tokens has a few kilobytes."""
_NEEDS_KEY: Final = frozenset({HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN})
_ID_PREFIX: Final = "token_id:"
AFTER_A_FAILURE_S: Final = 0.1
"""What is down is not to be hammered."""
Ask = Callable[[str, str, int], Awaitable[int | Unanswered]]
"""Asks a model to go on with a text for so many tokens at most; how many came, or why none did."""
_Post = Callable[[Mapping[str, JsonValue]], Awaitable[tuple[int, bytes]]]


class EngineCompletions:
    """Asks pods directly. A `CompletionsPort`."""

    def __init__(self, session: aiohttp.ClientSession, *, timeout_s: float = TIMEOUT_S) -> None:
        """Borrow a session; the caller closes it.

        Args:
            session: shared with other readers.
            timeout_s: seconds one request may take in all.
        """
        self._session = session
        self._timeout = aiohttp.ClientTimeout(total=timeout_s)
        self._timeout_s = timeout_s

    async def complete(
        self, pod: PodEndpoint, model: str, request: CompletionRequest
    ) -> Completion | Unanswered:
        url = pod.url("/v1/completions")
        where = f"Pod {pod.namespace}/{pod.pod} at {url}"
        try:
            status, answer = await self._post(url, _body(model, request))
        except TimeoutError:
            return Unanswered(f"{where} did not answer within {self._timeout_s:g} s.")
        except (BadAnswerError, aiohttp.ClientError, OSError) as error:
            return Unanswered(f"{where} cannot be asked: {cause_of(error)}.")
        if status in _NEEDS_KEY:
            return Unanswered(
                f"{where} answers {status}: it asks for an API key, and the operator has none. "
                "Such engines cannot be checked."
            )
        if status != HTTPStatus.OK:
            return Unanswered(f"{where} cannot be used: {refusal(status)}.")
        try:
            return _Answer.model_validate_json(answer).completion
        except ValidationError:
            # Which field is wrong is not told: names of fields are the engine's own words.
            return Unanswered(
                f"{where} does not answer as vLLM does, whose completions hold token ids."
            )

    async def _post(self, url: str, body: Mapping[str, JsonValue]) -> tuple[int, bytes]:
        async with self._session.post(
            url,
            json=body,
            headers={"Accept-Encoding": "identity"},
            timeout=self._timeout,
            allow_redirects=False,
        ) as response:
            return response.status, await first_bytes(response, LARGEST_ANSWER_BYTES)


def _body(model: str, request: CompletionRequest) -> dict[str, JsonValue]:
    prompt = request.prompt
    body: dict[str, JsonValue] = {
        "model": model,
        "prompt": prompt if isinstance(prompt, str) else list(prompt),
        "max_tokens": request.most_tokens,
        "temperature": 0,
        # Else the model's generation_config.json decides, and greedy is not the likeliest token.
        "repetition_penalty": 1,
        "return_token_ids": True,
    }
    if request.likeliest:
        body |= {"logprobs": request.likeliest, "return_tokens_as_token_ids": True}
    return body


class _Read(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class _Logprobs(_Read):
    top_logprobs: Annotated[tuple[dict[str, float] | None, ...], FailFast()] = ()


class _Choice(_Read):
    text: str
    token_ids: Annotated[tuple[int, ...], FailFast()]
    prompt_token_ids: tuple[int, ...] | None = None
    logprobs: _Logprobs | None = None


class _Answer(_Read):
    choices: Annotated[tuple[_Choice, ...], FailFast(), Field(min_length=1)]
    """Up to the first that is wrong: a list of all of them is many times what was sent."""

    @property
    def completion(self) -> Completion:
        choice = self.choices[0]
        first = choice.logprobs.top_logprobs[:1] if choice.logprobs else ()
        return Completion(
            token_ids=choice.token_ids,
            text=choice.text,
            prompt_token_ids=choice.prompt_token_ids or (),
            logprobs={
                int(token.removeprefix(_ID_PREFIX)): logprob
                for candidates in first
                for token, logprob in (candidates or {}).items()
                if token.removeprefix(_ID_PREFIX).isdecimal()
            },
        )


class _Usage(_Read):
    completion_tokens: int


class _Counted(_Read):
    usage: _Usage


def at_address(session: aiohttp.ClientSession, url: str, api_key: str) -> Ask:
    """Asks whatever answers at an address; an API key only where there is one."""
    path = f"{url.rstrip('/')}/v1/completions"
    headers = {"Accept-Encoding": "identity"}
    if api_key:
        headers |= bearer(api_key)

    async def post(body: Mapping[str, JsonValue]) -> tuple[int, bytes]:
        async with session.post(path, json=body, headers=headers, allow_redirects=False) as answer:
            return answer.status, await first_bytes(answer, LARGEST_ANSWER_BYTES)

    return _asking(post, url)


def through_api_server(api: ApiClient, namespace: str, service: str) -> Ask:
    """Asks a Service of a model: the API server passes it on to one of its pods."""
    place = f"namespaces/{quote(namespace)}/services/{quote(service)}:{HTTP_PORT}"

    async def post(body: Mapping[str, JsonValue]) -> tuple[int, bytes]:
        request = await api.param_serialize(
            "POST",
            f"/api/v1/{place}/proxy/v1/completions",
            header_params={"Accept-Encoding": "identity", "Content-Type": "application/json"},
            body=dict(body),
            auth_settings=["BearerToken"],
        )
        answer: aiohttp.ClientResponse = (await api.call_api(*request)).response
        try:
            return answer.status, await first_bytes(answer, LARGEST_ANSWER_BYTES)
        finally:
            answer.close()

    return _asking(post, f"Service {namespace}/{service}")


def _asking(post: _Post, where: str) -> Ask:
    async def ask(model: str, prompt: str, most_tokens: int) -> int | Unanswered:
        body: dict[str, JsonValue] = {
            "model": model,
            "prompt": prompt,
            "max_tokens": most_tokens,
            # As benches of vLLM ask: an engine's own default may be one at which a draft that fits
            # is accepted less.
            "temperature": 0,
        }
        try:
            async with asyncio.timeout(TIMEOUT_S):
                status, answer = await post(body)
        except TimeoutError:
            return Unanswered(f"{where} did not answer within {TIMEOUT_S:g} s.")
        except (BadAnswerError, aiohttp.ClientError, ApiException, OSError) as error:
            return Unanswered(f"{where} cannot be asked: {cause_of(error)}.")
        if status != HTTPStatus.OK:
            return Unanswered(_why_refused(where, status, answer))
        try:
            return _Counted.model_validate_json(answer).usage.completion_tokens
        except ValidationError:
            return Unanswered(f"{where} does not answer as vLLM does, with the tokens it made.")

    return ask


def _why_refused(where: str, status: int, answer: bytes) -> str:
    if status == HTTPStatus.FORBIDDEN and is_of_api_server(answer):
        return "The API server does not let you: it takes the right to create services/proxy."
    if status in _NEEDS_KEY:
        return f"{where} answers {status}: it asks for an API key. Give --url and --api-key-file."
    return f"{where} cannot be used: {refusal(status)}."


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestResult:
    """One finished request. Times are seconds on the clock of who sent it."""

    started_at_s: float
    ended_at_s: float
    tokens: int
    """How many came back."""
    error: str = ""
    """Why it failed, in a sentence; empty: it did not."""
    traffic: str = ""
    """What kind it was, where there are several."""

    @property
    def ok(self) -> bool:
        """Whether what came back is what was asked for."""
        return not self.error


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficSummary:
    """What a set of requests amounts to over a stretch of time."""

    requests: int
    failed: int
    tokens: int
    seconds: float

    @classmethod
    def of(cls, results: Iterable[RequestResult], seconds: float) -> "TrafficSummary":
        ended = tuple(results)
        return cls(
            requests=len(ended),
            failed=sum(not each.ok for each in ended),
            tokens=sum(each.tokens for each in ended),
            seconds=seconds,
        )

    @property
    def tokens_per_second(self) -> float:
        """Tokens of whole requests over the stretch."""
        return self.tokens / self.seconds if self.seconds else 0.0


class Load:
    """Keeps a number of requests in flight, which can change at any time. One loop uses it."""

    def __init__(
        self,
        ask: Callable[[], Awaitable[RequestResult]],
        *,
        per_second: float | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Send nothing yet.

        Args:
            ask: sends one request.
            per_second: requests that begin in a second, at most; None: as many as are answered.
            clock: seconds.
            sleep: for so many seconds.
        """
        self.results: list[RequestResult] = []
        self._ask = ask
        self._every_s = 1 / per_second if per_second else 0.0
        self._next_s = clock()
        self._clock = clock
        self._sleep = sleep
        self._in_flight = 0
        self._pause_s = 0.0
        self._workers: dict[int, asyncio.Task[None]] = {}

    def keep(self, in_flight: int, *, pause_s: float = 0.0) -> None:
        """Keep so many in flight from now on.

        Args:
            in_flight: requests at the same time, at most.
            pause_s: seconds between an answer and the next request of the same worker.
        """
        self._in_flight, self._pause_s = in_flight, pause_s
        for number in range(in_flight):
            worker = self._workers.get(number)
            if worker is None or worker.done():
                self._workers[number] = asyncio.create_task(self._work(number))

    async def stop(self) -> None:
        """Send nothing more, and wait for what is in flight."""
        self._in_flight = 0
        await asyncio.gather(*self._workers.values())
        self._workers.clear()

    async def _work(self, number: int) -> None:
        while number < self._in_flight:
            await self._turn()
            if number >= self._in_flight:
                return
            result = await self._ask()
            self.results.append(result)
            least_s = 0.0 if result.ok else AFTER_A_FAILURE_S
            await self._sleep(max(least_s, self._pause_s))

    async def _turn(self) -> None:
        """Wait until one more may begin."""
        if not self._every_s:
            return
        at_s = max(self._clock(), self._next_s)
        self._next_s = at_s + self._every_s
        await self._sleep(at_s - self._clock())
