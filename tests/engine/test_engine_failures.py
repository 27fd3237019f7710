"""What fails in a hook stays in the hook."""

from dataclasses import replace
from pathlib import Path

import pytest

from fathom_vllm.hook import FIRST_REST_SECONDS, MOST_ERRORS
from local_cluster.engine.language import EASY
from local_cluster.engine.process import EngineProcess, EngineSetup
from local_cluster.engine.scrape import scrape
from local_cluster.engine.traffic import LoadGenerator, Phase
from support.waiting import until

pytestmark = pytest.mark.engine


async def serve(engine: EngineProcess) -> None:
    """Few requests: long before a hook that is off tries again."""
    async with LoadGenerator(engine.base_url, engine.model) as load:
        load.set_phase(Phase(EASY, concurrency=4, max_tokens=100))
        await until(lambda: len(load.results) >= 8, "eight requests end")
    assert [result.error for result in load.results if not result.ok] == []


async def test_a_hook_that_always_fails_switches_itself_off(
    setup: EngineSetup, tmp_path: Path
) -> None:
    faulty = replace(
        setup, scheduler_cls="faulty.FaultyScheduler", python_path=(Path(__file__).parent,)
    )
    with EngineProcess(faulty, tmp_path) as engine:
        engine.write_depth(1, [[1, 16, 5]])
        await serve(engine)
        found = await scrape(engine.base_url)
        log = engine.log_path.read_text()
    assert found.total("fathom_hook_errors_total") == MOST_ERRORS
    assert found.total("fathom_live_depth") == 0
    assert found.total("vllm:spec_decode_num_drafts_total") > 100
    assert log.count("an error in the hook; the engine continues") == 1
    assert f"the hook is off for {FIRST_REST_SECONDS:.0f} s" in log


async def test_an_engine_for_which_no_hook_can_be_built_serves(
    setup: EngineSetup, tmp_path: Path
) -> None:
    hookless = replace(
        setup, scheduler_cls="faulty.HooklessScheduler", python_path=(Path(__file__).parent,)
    )
    with EngineProcess(hookless, tmp_path) as engine:
        await serve(engine)
        found = await scrape(engine.base_url)
        log = engine.log_path.read_text()
    assert found.total("fathom_live_depth") == 0
    assert found.total("fathom_plugin_info") == 1
    assert "the hook cannot be built" in log
