"""Closed-loop traffic against an OpenAI-compatible endpoint, checked token for token.

Every completion of the constructed pair is known in advance, so a request that was truncated,
aborted, or touched by speculation in any way is found out by the client itself.
"""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import aiohttp

from fathom.adapters.completions import Load, RequestResult, TrafficSummary
from local_cluster.engine.language import CYCLE_TOKENS, TrafficClass

DEFAULT_TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True)
class Phase:
    """What the traffic is made of for a while."""

    traffic: TrafficClass
    concurrency: int
    max_tokens: int = 96
    prompt_tokens: int = 8
    pause_s: float = 0.0
    """Between an answer and the next request: engines that share few processors have some left."""
    mixed_with: tuple[TrafficClass, ...] = ()
    """Each request's class is drawn from these and `traffic`; one that is here twice comes twice as
    often."""


class LoadGenerator:
    """Keeps a number of requests in flight; class and number can change at any time.

    Use as an async context manager: leaving it lets the requests in flight finish.
    """

    def __init__(
        self,
        base_url: str,
        model: str,
        *,
        seed: int = 0,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._load = Load(self._request, clock=clock)
        self._url = f"{base_url.rstrip('/')}/v1/completions"
        self._model = model
        self._random = random.Random(seed)  # noqa: S311 - reproducible, not secret
        self._timeout = aiohttp.ClientTimeout(total=timeout_s)
        self._clock = clock
        self._phase: Phase | None = None
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        # A connection for each request, as behind a gateway that picks a pod for each. A connection
        # that is kept leads to the same pod even after that pod has left the Service, and what
        # is sent to an engine that drains is refused.
        connector = aiohttp.TCPConnector(limit=0, force_close=True)
        self._session = aiohttp.ClientSession(connector=connector, timeout=self._timeout)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()
        if self._session is not None:
            await self._session.close()

    @property
    def results(self) -> list[RequestResult]:
        """All requests that ended; `ok` says that every token is the expected one."""
        return self._load.results

    def set_phase(self, phase: Phase) -> None:
        """Change the traffic. Requests in flight finish as what they are."""
        self._phase = phase
        self._load.keep(phase.concurrency, pause_s=phase.pause_s)

    async def stop(self) -> None:
        """Send nothing more, and wait for what is in flight."""
        await self._load.stop()

    def summary(self, since_s: float, until_s: float) -> TrafficSummary:
        """Count the requests that ended between two times of the generator's clock."""
        ended = (each for each in self.results if since_s <= each.ended_at_s < until_s)
        return TrafficSummary.of(ended, until_s - since_s)

    async def _request(self) -> RequestResult:
        if (phase := self._phase) is None:
            raise RuntimeError("set a phase first")
        traffic = self._random.choice((phase.traffic, *phase.mixed_with))
        first = traffic.first_token + self._random.randrange(CYCLE_TOKENS)
        prompt = (first, *traffic.walk(first, phase.prompt_tokens - 1))
        expected = traffic.walk(prompt[-1], phase.max_tokens)
        started_at_s = self._clock()
        tokens: tuple[int, ...] = ()
        try:
            tokens, error = await self._complete(prompt, phase.max_tokens)
            if not error:
                error = difference(expected, tokens)
        except (aiohttp.ClientError, TimeoutError, ValueError) as failure:
            error = f"{type(failure).__name__}: {failure}"
        return RequestResult(
            traffic=traffic.name,
            started_at_s=started_at_s,
            ended_at_s=self._clock(),
            tokens=len(tokens),
            error=error,
        )

    async def _complete(
        self, prompt: tuple[int, ...], max_tokens: int
    ) -> tuple[tuple[int, ...], str]:
        if self._session is None:
            raise RuntimeError("use the load generator as an async context manager")
        body = {
            "model": self._model,
            "prompt": list(prompt),
            "max_tokens": max_tokens,
            "temperature": 0,
            "return_token_ids": True,
        }
        async with self._session.post(self._url, json=body) as response:
            if response.status != 200:  # noqa: PLR2004 - HTTP's own number
                return (), f"HTTP {response.status}: {(await response.text())[:200]}"
            answer = await response.json()
        choice = answer["choices"][0]
        return tuple(choice["token_ids"] or ()), (
            ""
            if choice["finish_reason"] == "length"
            else f"finished with {choice['finish_reason']!r}, not 'length'"
        )


def difference(expected: tuple[int, ...], actual: tuple[int, ...]) -> str:
    """A sentence on where a completion departs from the expected one; empty if nowhere."""
    if expected == actual:
        return ""
    for position, (wanted, got) in enumerate(zip(expected, actual, strict=False)):
        if wanted != got:
            return f"token {position} is {got}, expected {wanted}"
    return f"{len(actual)} tokens, expected {len(expected)}"
