"""A quality check against real vLLM: the same words at depth 0 and at depth 3, token for token."""

from collections.abc import AsyncIterator, Iterator

import aiohttp
import pytest

from fathom.adapters.completions import EngineCompletions
from fathom.adapters.ports import PodEndpoint
from fathom.api.status import QualityResult
from fathom.engine.depth import DepthDocument, flat
from fathom.quality.check import MOST_TOKENS, PROMPTS, QualityCheck, begun
from fathom.quality.comparison import (
    Completion,
    CompletionRequest,
    Difference,
    QualityFleet,
    Replica,
    differences,
    gap_nats,
    gap_request,
)
from fathom.runtime.quality_check import replies_to
from local_cluster.engine.language import EASY, HARD, class_of
from local_cluster.engine.process import EngineProcess
from local_cluster.engine.scrape import scrape
from support.waiting import GUARD_S, until

pytestmark = [
    pytest.mark.engine,
    pytest.mark.xdist_group("engine"),
    # The one that other tests have been at before: what it counts is looked at as it grows.
    pytest.mark.parametrize("engine", ["0.32.0"], indirect=True),
]

DEPTH = 3
POD = "pod-0"
WALKS = tuple(traffic.walk(traffic.first_token, 8) for traffic in (EASY, HARD))


@pytest.fixture
async def completions() -> AsyncIterator[EngineCompletions]:
    async with aiohttp.ClientSession() as session:
        # The first log probabilities have the engine compile a kernel.
        yield EngineCompletions(session, timeout_s=GUARD_S)


def endpoint(engine: EngineProcess) -> PodEndpoint:
    return PodEndpoint(namespace="llm", pod=POD, ip="127.0.0.1", port=engine.port)


async def obeyed(engine: EngineProcess, document: DepthDocument) -> QualityFleet:
    """Write a document, and wait until the engine reports it in force."""
    engine.write_depth_text(document.to_json())

    async def reported() -> bool:
        found = await scrape(engine.base_url)
        return found.total("fathom_depth_generation") == document.generation

    await until(reported, f"generation {document.generation} is in force")
    return QualityFleet(
        now_s=0.0, replicas=(Replica(name=POD, generation=document.generation),), document=document
    )


async def asked(
    completions: EngineCompletions, engine: EngineProcess, request: CompletionRequest
) -> Completion:
    found = await completions.complete(endpoint(engine), engine.model, request)
    assert isinstance(found, Completion), found.sentence
    return found


async def test_a_whole_check_of_one_engine_is_lossless(
    engine: EngineProcess, completions: EngineCompletions, generations: Iterator[int]
) -> None:
    document = DepthDocument(generation=next(generations), schedule=flat(DEPTH, 16))
    check: QualityCheck = begun("one", await obeyed(engine, document))
    before = await scrape(engine.base_url)
    held = []
    while check.result is None:
        held.append(check.holds)
        own = {pod: flat(depth, 16) for pod, depth in check.holds.items()}
        fleet = await obeyed(
            engine, DepthDocument(generation=next(generations), schedule=flat(DEPTH, 16), pods=own)
        )
        check = check.advanced(fleet)
        replies = await replies_to(
            completions, engine.model, {POD: endpoint(engine)}, check.questions
        )
        check = check.answered(replies, 0.0)
    after = await scrape(engine.base_url)

    assert held == [{POD: DEPTH}, {POD: 0}]
    assert check.result.result is QualityResult.LOSSLESS, check.result.message
    assert check.result.ties == 0
    assert check.result.tokens == len(PROMPTS) * MOST_TOKENS
    # It was no comparison of two times the same thing.
    for depth in (0, DEPTH):
        steps = {"depth": str(depth), "step": "decode"}
        assert after.total("fathom_steps_total", **steps) > before.total(
            "fathom_steps_total", **steps
        )


async def test_accepted_and_rejected_drafts_leave_the_words_as_they_are(
    engine: EngineProcess, completions: EngineCompletions, generations: Iterator[int]
) -> None:
    said = {}
    for depth in (0, DEPTH):
        before = await scrape(engine.base_url)
        await obeyed(engine, DepthDocument(generation=next(generations), schedule=flat(depth, 16)))
        requests = [CompletionRequest(prompt, MOST_TOKENS) for prompt in WALKS]
        said[depth] = [await asked(completions, engine, request) for request in requests]
        after = await scrape(engine.base_url)
        drafted, accepted = (
            after.total(name) - before.total(name)
            for name in ("fathom_drafts_total", "fathom_accepted_tokens_total")
        )
        assert (drafted > 0) is (depth > 0)
        assert accepted < DEPTH * drafted or depth == 0

    assert differences(said[0], said[DEPTH]) == ()
    for prompt, completion in zip(WALKS, said[0], strict=True):
        traffic = class_of(prompt[-1])
        assert traffic is not None
        assert completion.prompt_token_ids == prompt
        assert completion.token_ids == traffic.walk(prompt[-1], MOST_TOKENS)


async def test_the_engine_tells_how_far_apart_two_candidates_are(
    engine: EngineProcess, completions: EngineCompletions, generations: Iterator[int]
) -> None:
    await obeyed(engine, DepthDocument(generation=next(generations), schedule=flat(0, 16)))
    reference = await asked(completions, engine, CompletionRequest(WALKS[0], 10))
    parted = Difference(prompt=0, position=4)

    again = await asked(completions, engine, gap_request(reference, parted))

    (likeliest, *others) = sorted(again.logprobs, key=lambda each: -again.logprobs[each])
    assert likeliest == reference.token_ids[4]
    assert len(others) == 4
    token_ids = (*reference.token_ids[:4], others[0])
    gap = gap_nats(parted, reference, Completion(token_ids=token_ids, text=""), again)
    assert gap == again.logprobs[likeliest] - again.logprobs[others[0]] > 0
