"""The hooks inside real vLLM, under traffic."""

import asyncio
from collections.abc import Iterator
from itertools import pairwise

import pytest

from local_cluster.engine.language import EASY, HARD, TrafficClass
from local_cluster.engine.process import EngineProcess
from local_cluster.engine.scrape import EngineScrape, scrape
from local_cluster.engine.traffic import LoadGenerator, Phase
from support.engine_steps import gained, in_force, requests_done, set_depth
from support.waiting import until

pytestmark = [pytest.mark.engine, pytest.mark.xdist_group("engine")]

DRAFTS = "fathom_drafts_total"
STEP_SECONDS = "fathom_step_seconds_total"


async def test_ten_changes_of_depth_lose_and_change_nothing(
    engine: EngineProcess, generations: Iterator[int]
) -> None:
    before = await scrape(engine.base_url)
    async with LoadGenerator(engine.base_url, engine.model, seed=10) as load:
        for number, depth in enumerate((3, 5, 1, 7, 0, 2, 6, 4, 0, 7)):
            # Long requests and a few: changes fall into the middle of them.
            load.set_phase(Phase((EASY, HARD)[number % 2], concurrency=6, max_tokens=150))
            await set_depth(engine, generations, depth)
            await requests_done(load, 6)
    after = await scrape(engine.base_url)
    assert len(load.results) >= 60
    assert [result.error for result in load.results if not result.ok] == []
    assert gained(before, after, "fathom_hook_errors_total") == 0
    assert gained(before, after, "fathom_transition_steps_total") >= 5
    depths = set(after.labels("fathom_steps_total", "depth"))
    assert depths == {str(depth) for depth in range(8)}


@pytest.mark.parametrize("traffic", [EASY, HARD], ids=lambda traffic: traffic.name)
async def test_counters_agree_with_vllms_own(
    engine: EngineProcess, generations: Iterator[int], traffic: TrafficClass
) -> None:
    await set_depth(engine, generations, 4)
    before = await scrape(engine.base_url)
    async with LoadGenerator(engine.base_url, engine.model, seed=11) as load:
        load.set_phase(Phase(traffic, concurrency=5, max_tokens=90))
        await requests_done(load, 30)
    after = await scrape(engine.base_url)  # idle: nothing in flight between the two processes
    assert gained(before, after, "fathom_transition_steps_total") == 0
    drafts = gained(before, after, "fathom_drafts_total", depth="4")
    assert drafts == gained(before, after, "vllm:spec_decode_num_drafts_total") > 0
    for position in map(str, range(4)):
        assert gained(
            before, after, "fathom_accepted_tokens_total", depth="4", position=position
        ) == gained(
            before, after, "vllm:spec_decode_num_accepted_tokens_per_pos_total", position=position
        )
    tokens = gained(before, after, "fathom_tokens_total")
    emitted = gained(before, after, "vllm:generation_tokens_total")
    assert emitted == sum(result.tokens for result in load.results)
    assert tokens == emitted


async def test_busy_seconds_are_those_of_steps_and_not_of_idle_time(
    engine: EngineProcess, generations: Iterator[int]
) -> None:
    before = await set_depth(engine, generations, 3)
    await asyncio.sleep(1.0)
    idle = await scrape(engine.base_url)
    async with LoadGenerator(engine.base_url, engine.model, seed=12) as load:
        load.set_phase(Phase(HARD, concurrency=4, max_tokens=100))
        await requests_done(load, 24)
    after = await scrape(engine.base_url)
    first = min(result.started_at_s for result in load.results)
    last = max(result.ended_at_s for result in load.results)
    assert gained(before, idle, STEP_SECONDS) == 0
    busy = gained(idle, after, STEP_SECONDS)
    assert 0 < gained(idle, after, "fathom_hook_seconds_total") < busy < last - first
    # vLLM's own core stamps what it puts out: each request waits for each of its steps.
    waited = sum(
        gained(idle, after, STEP_SECONDS, **cell)
        * gained(idle, after, "fathom_scheduled_requests_total", **cell)
        / steps
        for cell in cells(after)
        if (steps := gained(idle, after, "fathom_steps_total", **cell))
    )
    stamped = gained(idle, after, "vllm:inter_token_latency_seconds_sum")
    # What stalls took is counted apart, and each of the four waits for that, too.
    stalled = 4 * gained(idle, after, "fathom_stalled_step_seconds_total")
    assert 0.9 * stamped <= waited + stalled
    assert waited <= 1.1 * stamped


def cells(found: EngineScrape) -> list[dict[str, str]]:
    """What steps are counted by, each once."""
    return [dict(each.labels) for each in found.samples if each.name == STEP_SECONDS]


@pytest.mark.parametrize("traffic", [EASY, HARD], ids=lambda traffic: traffic.name)
async def test_survival_is_what_the_pair_was_built_for(
    engine: EngineProcess, generations: Iterator[int], traffic: TrafficClass
) -> None:
    before = await set_depth(engine, generations, 7)
    async with LoadGenerator(engine.base_url, engine.model, seed=13) as load:
        load.set_phase(Phase(traffic, concurrency=8, max_tokens=256))

        async def drafted() -> bool:
            return gained(before, await scrape(engine.base_url), DRAFTS, depth="7") >= 1200

        await until(drafted, "1200 drafts")
    after = await scrape(engine.base_url)
    drafts = gained(before, after, DRAFTS, depth="7")
    measured = [
        gained(before, after, "fathom_accepted_tokens_total", depth="7", position=str(position))
        / drafts
        for position in range(7)
    ]
    assert measured == pytest.approx(traffic.survival(7), abs=0.05)
    assert all(earlier >= later for earlier, later in pairwise(measured))


@pytest.mark.parametrize("damage", ["{", '{"generation": 1, "schedule": [[1, 16, 99]]}'])
async def test_a_damaged_document_is_counted_once_and_serving_goes_on(
    engine: EngineProcess, generations: Iterator[int], damage: str
) -> None:
    async with LoadGenerator(engine.base_url, engine.model, seed=14) as load:
        load.set_phase(Phase(EASY, concurrency=3, max_tokens=200))
        before = await set_depth(engine, generations, 5)
        engine.write_depth_text(damage)
        await requests_done(load, 12)
        damaged = await scrape(engine.base_url)
        after = await set_depth(engine, generations, 2)
        await requests_done(load, 3)
    assert gained(before, damaged, "fathom_depth_rejections_total") == 1
    assert damaged.total("fathom_depth_generation") == before.total("fathom_depth_generation")
    assert gained(before, damaged, "fathom_drafts_total", depth="5") > 50
    assert after.total("fathom_live_depth") == 1
    assert [result.error for result in load.results if not result.ok] == []


async def test_a_schedule_by_batch_is_obeyed_by_batch(
    engine: EngineProcess, generations: Iterator[int]
) -> None:
    generation = next(generations)
    engine.write_depth(generation, [[1, 1, 6], [2, 3, 4], [4, 16, 1]])
    before = await in_force(engine, generation)
    async with LoadGenerator(engine.base_url, engine.model, seed=15) as load:
        for concurrency in (1, 3, 8):
            load.set_phase(Phase(EASY, concurrency=concurrency, max_tokens=120))
            await requests_done(load, 3 * concurrency)
    after = await scrape(engine.base_url)
    for batch_le, depth in (("1", "6"), ("8", "1")):
        expected = {"batch_le": batch_le, "step": "decode"}
        all_steps = gained(before, after, "fathom_steps_total", **expected)
        at_depth = gained(before, after, "fathom_steps_total", **expected, depth=depth)
        assert at_depth == all_steps > 10
    assert [result.error for result in load.results if not result.ok] == []
