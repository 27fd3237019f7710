"""Greedy completions over vLLM's OpenAI-compatible API.

Fields as in `vllm/entrypoints/openai/completion/protocol.py`.
"""

from collections.abc import Mapping
from typing import Annotated, Final

import aiohttp
from pydantic import BaseModel, ConfigDict, FailFast, Field, JsonValue, ValidationError

from fathom.adapters.http import BadAnswerError, cause_of, first_bytes, refusal
from fathom.adapters.ports import PodEndpoint
from fathom.quality.comparison import Completion, CompletionRequest, Unanswered

TIMEOUT_S: Final = 120.0
"""A busy engine has a queue, and Model Runner V1 compiles a kernel for its first logprobs."""
LARGEST_ANSWER_BYTES: Final = 1024 * 1024
"""An answer of 64 tokens has a few kilobytes."""
_OK: Final = 200
_NEEDS_KEY: Final = frozenset({401, 403})
_ID_PREFIX: Final = "token_id:"


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
        if status != _OK:
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
