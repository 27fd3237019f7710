"""Acceptance by context on real vLLM: as a recount of what it emitted has it, exactly."""

import asyncio
from collections import Counter
from collections.abc import Iterator

import aiohttp
import pytest

from fathom.adapters.metrics_page import parse
from fathom.measurement.deltas import delta
from fathom.tuning.estimate.acceptance_by_context import Contexts
from fathom_vllm.buckets import context_range
from local_cluster.engine.language import EASY, HARD, TrafficClass
from local_cluster.engine.process import EngineProcess
from local_cluster.engine.scrape import scrape
from support.engine_steps import gained, set_depth

pytestmark = [pytest.mark.engine, pytest.mark.xdist_group("engine")]

DEPTH = 4
REQUESTS = (
    # Class, tokens of the prompt, tokens of the answer: some end early, and three come from a
    # context below 2,048 tokens to one beyond.
    *((EASY, length, 300) for length in (8, 40, 700, 1900)),
    *((HARD, length, 120) for length in (1990, 2047, 2100, 3000)),
)
"""Not more than `MOST_DRAFTS`, so that every step is counted."""


async def answered(
    session: aiohttp.ClientSession, engine: EngineProcess, prompt: list[int], tokens: int
) -> list[int]:
    body = {
        "model": engine.model,
        "prompt": prompt,
        "max_tokens": tokens,
        "temperature": 0,
        "return_token_ids": True,
    }
    async with session.post(f"{engine.base_url}/v1/completions", json=body) as response:
        assert response.status == 200, await response.text()
        answer = await response.json()
    return list(answer["choices"][0]["token_ids"])


async def page(engine: EngineProcess) -> str:
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"{engine.base_url}/metrics") as response,
    ):
        return await response.text()


def recounted(
    traffic: TrafficClass, prompt: list[int], tokens: list[int], *, asynchronous: bool
) -> Iterator[tuple[int, int]]:
    """Range and accepted tokens of each draft, from what a request emitted.

    The pair says how many tokens of a draft are right. The first token comes from the prompt, and
    is not computed before it is verified with the drafts that follow it.
    """
    emitted = 1
    context = len(prompt)
    while emitted < len(tokens):
        accepted = traffic.accepted(tokens[emitted - 1], DEPTH)
        yield context_range(context), accepted
        emitted += 1 + accepted
        # With a step in flight, vLLM takes its drafts for accepted.
        context = len(prompt) + emitted - 1 + (DEPTH - accepted if asynchronous else 0)


async def test_drafts_by_context_are_those_of_the_token_stream(
    engine: EngineProcess, generations: Iterator[int]
) -> None:
    await set_depth(engine, generations, DEPTH)
    before, page_before = await scrape(engine.base_url), await page(engine)
    prompts = [
        [traffic.first_token + at, *traffic.walk(traffic.first_token + at, length - 1)]
        for at, (traffic, length, _) in enumerate(REQUESTS)
    ]
    async with aiohttp.ClientSession() as session:
        answers = await asyncio.gather(
            *(
                answered(session, engine, prompt, tokens)
                for prompt, (_, _, tokens) in zip(prompts, REQUESTS, strict=True)
            )
        )
    after, page_after = await scrape(engine.base_url), await page(engine)

    (asynchronous,) = after.labels("fathom_engine_info", "asynchronous")
    drafts, accepted, first = Counter[int](), Counter[int](), Counter[int]()
    by_class = Counter[tuple[int, TrafficClass]]()
    for prompt, tokens, (traffic, _, _) in zip(prompts, answers, REQUESTS, strict=True):
        assert tokens == list(traffic.walk(prompt[-1], len(tokens)))
        steps = recounted(traffic, prompt, tokens, asynchronous=asynchronous == "true")
        for index, right in steps:
            drafts[index] += 1
            accepted[index] += right
            first[index] += right > 0
            by_class[index, traffic] += 1
    found = delta(
        parse(page_before, pod="pod-0", at_s=1.0), parse(page_after, pod="pod-0", at_s=2.0)
    )
    assert found is not None
    assert {
        context_range(each.context_ge): (
            counts.drafts,
            counts.tokens,
            counts.accepted,
            counts.first_accepted,
        )
        for each, counts in found.contexts.items()
    } == {
        index: (drafts[index], DEPTH * drafts[index], accepted[index], first[index])
        for index in (0, 1)
    }
    assert gained(before, after, "vllm:spec_decode_num_drafts_total") == drafts.total()
    assert gained(before, after, "vllm:spec_decode_num_accepted_tokens_total") == accepted.total()
    assert gained(before, after, "fathom_hook_errors_total") == 0

    # Each range has the acceptance that its classes were built with, within the error it states.
    for each in Contexts().updated([found], 2.0).acceptance():
        index = context_range(each.context_ge)
        built = sum(
            by_class[index, traffic] * traffic.survival(DEPTH)[0] for traffic in (EASY, HARD)
        )
        assert each.first is not None
        assert each.error is not None
        assert abs(each.first - built / drafts[index]) < 3 * each.error
