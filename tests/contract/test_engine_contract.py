"""The simulated engine beside real vLLM: the same assertions hold for both."""

import asyncio
import itertools
from collections.abc import Iterator

import aiohttp
import pytest

from fathom.engine.argument_parser import EngineArguments
from fathom.engine.depth import DepthDocument, flat
from fathom.engine.report import asked_by, device_in, differences, report_in
from fathom_vllm.engine_report import LABELS
from local_cluster.engine.environment import ensure_engine_environment
from local_cluster.engine.language import EASY, HARD
from local_cluster.engine.model_pair import ensure_model_pair
from local_cluster.engine.process import EngineProcess, real_setup, simulated_setup
from local_cluster.engine.scrape import EngineScrape, scrape
from local_cluster.engine.traffic import LoadGenerator, Phase
from local_cluster.paths import cache_dir
from support.engine_steps import in_force
from support.waiting import guarded, until

OWN_METRICS = {
    "fathom_steps_total": {"batch_ge", "batch_le", "depth", "step"},
    "fathom_step_seconds_total": {"batch_ge", "batch_le", "depth", "step"},
    "fathom_tokens_total": {"batch_ge", "batch_le", "depth", "step"},
    "fathom_scheduled_requests_total": {"batch_ge", "batch_le", "depth", "step"},
    "fathom_drafts_total": {"batch_ge", "batch_le", "depth"},
    "fathom_accepted_tokens_total": {"batch_ge", "batch_le", "depth", "position"},
    "fathom_context_drafts_total": {"context_ge", "context_le"},
    "fathom_context_draft_tokens_total": {"context_ge", "context_le"},
    "fathom_context_accepted_tokens_total": {"context_ge", "context_le"},
    "fathom_context_first_accepted_total": {"context_ge", "context_le"},
    "fathom_transition_steps_total": set(),
    "fathom_depth_generation": set(),
    "fathom_depth_schedule_hash": set(),
    "fathom_depth_document_seen": set(),
    "fathom_depth_document_gone": set(),
    "fathom_pod_named": set(),
    "fathom_depth_rejections_total": set(),
    "fathom_hook_errors_total": set(),
    "fathom_hook_seconds_total": set(),
    "fathom_live_depth": set(),
    "fathom_counters_shown": set(),
    "fathom_plugin_info": {"version", "content", "pod_name", "pod_uid"},
    "fathom_engine_info": set(LABELS),
}
_ENGINE = {"engine", "model_name"}
ENGINE_METRICS = {
    "vllm:spec_decode_num_drafts_total": _ENGINE,
    "vllm:spec_decode_num_draft_tokens_total": _ENGINE,
    "vllm:spec_decode_num_accepted_tokens_total": _ENGINE,
    "vllm:spec_decode_num_accepted_tokens_per_pos_total": {*_ENGINE, "position"},
    "vllm:num_requests_running": _ENGINE,
    "vllm:num_requests_waiting": _ENGINE,
    "vllm:kv_cache_usage_perc": _ENGINE,
    "vllm:num_preemptions_total": _ENGINE,
    "vllm:generation_tokens_total": _ENGINE,
    "vllm:prompt_tokens_total": _ENGINE,
    "vllm:request_success_total": {*_ENGINE, "finished_reason"},
    "vllm:inter_token_latency_seconds_sum": _ENGINE,
    "vllm:inter_token_latency_seconds_count": _ENGINE,
    "vllm:request_time_per_output_token_seconds_count": _ENGINE,
    "vllm:time_to_first_token_seconds_count": _ENGINE,
}


@pytest.fixture(
    scope="module",
    params=["simulated", pytest.param("real", marks=pytest.mark.engine)],
)
def engine(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[EngineProcess]:
    if request.param == "real":
        environment = ensure_engine_environment()
        pair = ensure_model_pair(cache_dir(), environment / "bin" / "python")
        setup = real_setup(environment, pair)
    else:
        setup = simulated_setup()
    with EngineProcess(setup, tmp_path_factory.mktemp("engine")) as process:
        yield process


async def drafted_at(
    engine: EngineProcess, depth: int, drafts: int, load: LoadGenerator
) -> EngineScrape:
    """Wait until that many more drafts have been counted at a depth, and no request has failed."""
    before = (await scrape(engine.base_url)).total("fathom_drafts_total", depth=str(depth))
    found: EngineScrape | None = None

    async def drafted() -> EngineScrape | None:
        nonlocal found
        found = await scrape(engine.base_url)
        assert [result.error for result in load.results if not result.ok] == []
        enough = found.total("fathom_drafts_total", depth=str(depth)) >= before + drafts
        return found if enough else None

    try:
        return await until(drafted, f"{drafts} drafts at depth {depth}")
    except pytest.fail.Exception as failure:
        ours = (
            [sample for sample in found.samples if sample.name.startswith("fathom_")]
            if found
            else []
        )
        pytest.fail(f"{failure} {len(load.results)} requests ended. {ours} {engine.log_tail()}")


async def transition_seen(engine: EngineProcess, first_generation: int) -> None:
    """Change depth to and fro until a change falls into the middle of a completion."""
    async with guarded("a change in the middle of a completion"):
        for generation in itertools.count(first_generation):
            engine.write_depth(generation, [[1, 16, 1 + generation % 2 * 4]])
            found = await in_force(engine, generation)
            if found.total("fathom_transition_steps_total") >= 1:
                return


async def test_it_is_healthy_and_names_its_model(engine: EngineProcess) -> None:
    async with aiohttp.ClientSession(engine.base_url) as session:
        for path in ("/health", "/ping", "/load"):
            async with session.get(path) as response:
                assert response.status == 200
        async with session.get("/version") as response:
            assert (await response.json())["version"].startswith("0.")
        async with session.get("/v1/models") as response:
            models = (await response.json())["data"]
    assert [model["id"] for model in models] == [engine.model]


async def test_before_a_document_it_runs_at_the_users_depth(engine: EngineProcess) -> None:
    async with LoadGenerator(engine.base_url, engine.model) as load:
        load.set_phase(Phase(EASY, concurrency=2))
        found = await drafted_at(engine, engine.setup.depth, 20, load)
    assert found.total("fathom_live_depth") == 1
    assert found.total("fathom_depth_generation") == 0
    assert set(found.labels("fathom_drafts_total", "depth")) == {str(engine.setup.depth)}


async def test_completions_are_exact(engine: EngineProcess) -> None:
    async with LoadGenerator(engine.base_url, engine.model, seed=1) as load:
        for traffic in (EASY, HARD):
            load.set_phase(Phase(traffic, concurrency=4, max_tokens=40))
            await drafted_at(engine, engine.setup.depth, 100, load)
    assert len(load.results) >= 8
    assert [result.error for result in load.results if not result.ok] == []
    assert {result.traffic for result in load.results} == {"easy", "hard"}
    assert {result.tokens for result in load.results} == {40}


async def test_text_prompts_are_continued_in_text(engine: EngineProcess) -> None:
    body = {"model": engine.model, "prompt": "hard-998", "max_tokens": 3, "temperature": 0}
    async with (
        aiohttp.ClientSession(engine.base_url) as session,
        session.post("/v1/completions", json=body) as response,
    ):
        answer = await response.json()
    assert answer["choices"][0]["text"] == " hard-999 hard-0 hard-1"
    assert answer["usage"]["completion_tokens"] == 3


async def test_metrics_have_the_agreed_names_and_labels(engine: EngineProcess) -> None:
    async with LoadGenerator(engine.base_url, engine.model) as load:
        load.set_phase(Phase(EASY, concurrency=1))
        await drafted_at(engine, engine.setup.depth, 10, load)
    found = await scrape(engine.base_url)
    for name, labels in {**OWN_METRICS, **ENGINE_METRICS}.items():
        shown = [set(sample.labels) for sample in found.samples if sample.name == name]
        assert shown, f"{name} is missing"
        assert all(names == labels for names in shown), f"{name} has labels {shown[0]}"


async def test_it_tells_what_it_runs_with(engine: EngineProcess) -> None:
    found = await scrape(engine.base_url)
    (told,) = [each.labels for each in found.samples if each.name == "fathom_engine_info"]
    report = report_in(told)
    assert device_in(told) == "cpu"
    assert report.depths == tuple(range(engine.setup.max_depth + 1))
    assert (report.method, report.max_num_seqs) == ("eagle3", engine.setup.max_batch)
    assert (report.asynchronous, report.tensor_parallel, report.graph_mode) == (False, 1, "NONE")
    asked = asked_by(EngineArguments.of(tuple(engine.setup.arguments(engine.port))))
    assert (asked.depths, asked.max_num_seqs) == (report.depths, report.max_num_seqs)
    assert [*differences(report, asked)] == []


async def test_depth_changes_live_with_requests_in_flight(engine: EngineProcess) -> None:
    async with LoadGenerator(engine.base_url, engine.model, seed=2) as load:
        load.set_phase(Phase(EASY, concurrency=4, max_tokens=200))
        for generation, depth in enumerate((5, 1, 7, 2), start=20):
            engine.write_depth(generation, [[1, 16, depth]])
            await in_force(engine, generation)
            found = await drafted_at(engine, depth, 50, load)
            assert found.total("fathom_depth_generation") == generation
        # A change between two completions falls on a step of prefill only, which is no transition.
        await transition_seen(engine, first_generation=24)
    assert [result.error for result in load.results if not result.ok] == []
    after = await scrape(engine.base_url)
    assert after.total("fathom_hook_errors_total") == 0


async def test_at_depth_zero_it_still_serves_and_drafts_nothing(engine: EngineProcess) -> None:
    engine.write_depth(3000, [[1, 16, 0]])
    async with LoadGenerator(engine.base_url, engine.model, seed=3) as load:
        load.set_phase(Phase(HARD, concurrency=2, max_tokens=30))
        before = await in_force(engine, 3000)
        await until(lambda: len(load.results) >= 6, "six requests end")
    after = await scrape(engine.base_url)
    assert [result.error for result in load.results if not result.ok] == []
    assert after.total("fathom_steps_total", depth="0") > 30
    gained = after.total("fathom_drafts_total") - before.total("fathom_drafts_total")
    assert gained <= 4  # what was in flight when the document came into force


async def test_a_pods_own_entry_wins(engine: EngineProcess) -> None:
    engine.write_depth(40, [[1, 16, 3]], pods={"pod-0": [[1, 16, 6]], "pod-1": [[1, 16, 1]]})
    await in_force(engine, 40)
    async with LoadGenerator(engine.base_url, engine.model) as load:
        load.set_phase(Phase(EASY, concurrency=1))
        await drafted_at(engine, 6, 10, load)


async def test_an_idle_engine_reports_the_generation_its_next_step_obeys(
    engine: EngineProcess,
) -> None:
    for generation in (50, 51):
        engine.write_depth(generation, [[1, 16, generation % 8]])
        found = await in_force(engine, generation)
        document = DepthDocument(generation=generation, schedule=flat(generation % 8, 16))
        assert found.total("fathom_depth_schedule_hash") == document.hash_for_pod("pod-0")


async def test_a_refused_document_is_counted_and_changes_nothing(engine: EngineProcess) -> None:
    engine.write_depth(60, [[1, 16, 4]])
    async with LoadGenerator(engine.base_url, engine.model, seed=4) as load:
        load.set_phase(Phase(EASY, concurrency=2))
        before = (await in_force(engine, 60)).total("fathom_depth_rejections_total")
        engine.write_depth(61, [[1, 16, 99]])

        async def refused() -> EngineScrape | None:
            found = await scrape(engine.base_url)
            return found if found.total("fathom_depth_rejections_total") == before + 1 else None

        found = await until(refused, "the document is refused")
        assert found.total("fathom_depth_generation") == 60
        await drafted_at(engine, 4, 20, load)
    assert [result.error for result in load.results if not result.ok] == []


async def test_counters_only_grow(engine: EngineProcess) -> None:
    engine.write_depth(65, [[1, 16, 4]])
    earlier = await in_force(engine, 65)
    async with LoadGenerator(engine.base_url, engine.model) as load:
        load.set_phase(Phase(HARD, concurrency=3))
        await drafted_at(engine, 4, 30, load)
    later = await scrape(engine.base_url)
    values = {
        (sample.name, tuple(sorted(sample.labels.items()))): sample for sample in later.samples
    }
    for sample in earlier.samples:
        if sample.name.startswith("fathom_") and sample.name.endswith("_total"):
            now = values[sample.name, tuple(sorted(sample.labels.items()))]
            assert now.value >= sample.value, sample


async def test_sigterm_lets_requests_in_flight_finish(engine: EngineProcess) -> None:
    # The last test of the module: there is no engine after it.
    engine.write_depth(70, [[1, 16, 3]])
    await in_force(engine, 70)
    async with LoadGenerator(engine.base_url, engine.model, seed=5) as load:
        load.set_phase(Phase(HARD, concurrency=2, max_tokens=400))
        await drafted_at(engine, 3, 20, load)
        stopping = asyncio.create_task(load.stop())
        await asyncio.sleep(0)
        engine.terminate()
        await stopping
    # Those in flight at the signal among them; before it there may have been more.
    assert len(load.results) >= 2
    assert [result.error for result in load.results if not result.ok] == []
    await until(lambda: not engine.running, "it ends")
