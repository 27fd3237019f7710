"""Two data-parallel engines in one pod, as vLLM starts them by itself: with a server for each."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import aiohttp
import pytest

from fathom.adapters.metrics_page import parse
from fathom.measurement.counters import DraftCounts, PodCounters, StepKind
from local_cluster.engine.language import EASY
from local_cluster.engine.process import EngineProcess, EngineSetup
from local_cluster.engine.scrape import scrape
from local_cluster.engine.traffic import LoadGenerator, Phase
from support.waiting import until

pytestmark = pytest.mark.engine

PAGES = 8
"""Read in a row, by connections of their own: both servers answer some of them."""


@pytest.fixture
def engine(setup: EngineSetup, tmp_path: Path) -> Iterator[EngineProcess]:
    # With the worker in each engine's own process: two processes fewer to start.
    ranks = ("--data-parallel-size", "2", "--distributed-executor-backend", "uni")
    with EngineProcess(replace(setup, live=False, more_arguments=ranks), tmp_path) as process:
        yield process


async def page(engine: EngineProcess) -> PodCounters:
    """What the operator reads."""
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"{engine.base_url}/metrics") as response,
    ):
        return parse(await response.text(), pod="pod-0", at_s=0.0)


async def test_what_all_of_them_count_is_what_vllm_counts_whichever_server_is_asked(
    engine: EngineProcess,
) -> None:
    async with LoadGenerator(engine.base_url, engine.model, seed=16) as load:
        load.set_phase(Phase(EASY, concurrency=6, max_tokens=60))
        await until(lambda: len(load.results) >= 20, "20 requests end")
    assert [result.error for result in load.results if not result.ok] == []

    vllms = await scrape(engine.base_url)
    drafts = {
        rank: vllms.total("vllm:spec_decode_num_drafts_total", engine=rank) for rank in ("0", "1")
    }
    assert min(drafts.values()) > 0
    for _ in range(PAGES):
        found = await page(engine)
        pooled = sum(found.drafts.values(), DraftCounts())
        assert pooled.drafts == sum(drafts.values())
        assert pooled.accepted == tuple(
            vllms.total("vllm:spec_decode_num_accepted_tokens_per_pos_total", position=str(at))
            for at in range(3)
        )
        assert {cell.depth for cell in found.drafts} == {engine.setup.depth} == {3}
        decoded = [counts for cell, counts in found.cells.items() if cell.step is StepKind.DECODE]
        assert all(each.step_seconds > 0 for each in decoded)
        assert (found.hook_errors, found.transition_steps) == (0, 0)
        assert (found.live_depth, found.counters_shown) == (False, True)
