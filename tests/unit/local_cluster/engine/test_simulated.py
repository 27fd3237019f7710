"""The simulated engine's command line and plant; its behaviour is in the contract tests."""

import asyncio
import json
import time
from pathlib import Path

import pytest

from fathom_vllm.bundle import SCHEDULER_CLASS
from fathom_vllm.counters import CountersWriter
from fathom_vllm.counts import read_counts
from fathom_vllm.depth_file import DepthFile
from fathom_vllm.hook import SchedulerHook
from local_cluster.engine.language import EASY, HARD
from local_cluster.engine.plant import Plant
from local_cluster.engine.process import EngineProcess, free_port, simulated_setup
from local_cluster.engine.simulated import parse_arguments
from local_cluster.engine.simulated_core import SimulatedEngine, StepObserver
from support.waiting import GUARD_S


def test_it_takes_vllms_arguments_and_passes_over_the_rest() -> None:
    speculative = {
        "model": "/models/draft",
        "method": "eagle3",
        "num_speculative_tokens": 7,
        "num_speculative_tokens_per_batch_size": [[1, 8, 3], [9, 9, 0]],
    }
    settings = parse_arguments(
        [
            *("serve", "/models/target", "--dtype", "float32", "--enforce-eager"),
            *("--host", "127.0.0.1", "--port", "8123", "--max-num-seqs", "16"),
            *("--speculative-config", json.dumps(speculative), "--shutdown-timeout", "30"),
            *("--scheduler-cls", SCHEDULER_CLASS, "--tool-call-parser", "kimi_k2"),
        ]
    )
    assert (settings.model, settings.port, settings.max_batch) == ("/models/target", 8123, 16)
    assert (settings.depth, settings.hooked, settings.shutdown_timeout_s) == (7, True, 30)
    assert settings.table == [0, *[3] * 8, *[0] * 8]


def test_without_a_schedule_and_a_scheduler_it_is_a_static_engine() -> None:
    config = '{"method":"eagle3","num_speculative_tokens":3}'
    settings = parse_arguments(["serve", "m", "--speculative-config", config])
    assert (settings.depth, settings.table, settings.hooked) == (3, None, False)


def test_a_depth_alone_is_enough_by_hand() -> None:
    settings = parse_arguments(["--port", "1", "--num-speculative-tokens", "5"])
    assert (settings.depth, settings.hooked, settings.model) == (5, True, "pair")
    assert settings.table is not None
    assert set(settings.table[1:]) == {5}


def test_a_schedule_vllm_would_refuse_is_refused() -> None:
    config = '{"num_speculative_tokens":3,"num_speculative_tokens_per_batch_size":[[2,4,3]]}'
    with pytest.raises(ValueError, match="first range must start at 1"):
        parse_arguments(["serve", "m", "--speculative-config", config])


@pytest.mark.parametrize("batch", [1, 4, 8])
def test_its_plant_makes_the_classes_want_different_depths(batch: int) -> None:
    def speed(depth: int, survival: tuple[float, ...]) -> float:
        seconds = Plant().step_seconds(
            requests=batch, tokens=batch * (depth + 1), prefill=0, drafting=depth
        )
        return batch * (1 + sum(survival[:depth])) / seconds

    easy = [speed(depth, EASY.survival(7)) for depth in range(8)]
    hard = [speed(depth, HARD.survival(7)) for depth in range(8)]
    assert easy.index(max(easy)) - hard.index(max(hard)) >= 3
    assert easy[3] < 0.9 * max(easy) or hard[3] < 0.9 * max(hard)


@pytest.mark.parametrize("wished", [True, False])
def test_it_cuts_drafts_where_adaptive_verification_is_on(*, wished: bool) -> None:
    config = {"num_speculative_tokens": 7, "enable_adaptive_verification": wished}
    settings = parse_arguments(["serve", "m", "--speculative-config", json.dumps(config)])
    assert settings.cuts_drafts is wished


def test_what_is_worth_verifying_follows_batch_and_text() -> None:
    dear = Plant(token_s=0.0003)

    def verified(batch: int, right: float, drafts: int = 7) -> int:
        return dear.worth_verifying([(drafts, right)] * batch, drafting=drafts)

    assert verified(1, 0.98) == 7
    assert verified(1, 0.8) > verified(16, 0.8) > verified(16, 0.1) == 0
    assert verified(16, 0.98, drafts=2) == 2
    assert dear.worth_verifying([], drafting=0) == 0


async def test_a_cut_step_emits_what_was_verified_and_takes_less_long() -> None:
    async def served(*, cuts: bool) -> tuple[list[int], int]:
        observer = Counting()
        engine = SimulatedEngine(
            max_batch=8,
            depth=7,
            table=None,
            cuts_drafts=cuts,
            hook=None,
            observer=observer,
            plant=Plant(step_s=0.0, token_s=1e-5, draft_s=0.0, draft_request_s=0.0),
            clock=time.perf_counter,
        )
        task = asyncio.create_task(engine.run())
        request = engine.submit("a", [HARD.first_token], 40)
        await request.done.wait()
        task.cancel()
        return request.tokens, observer.steps

    (cut, more), (whole, fewer) = await served(cuts=True), await served(cuts=False)
    assert cut == whole
    assert more > fewer


class Counting(StepObserver):
    def __init__(self) -> None:
        self.steps = 0

    def stepped(self, tokens: int) -> None:
        del tokens
        self.steps += 1


def test_a_proxy_is_no_way_to_an_engine_on_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{free_port()}")
    engine = EngineProcess(simulated_setup(), tmp_path)
    try:
        engine.start(timeout_s=GUARD_S)
        assert engine.running
    finally:
        engine.stop()


async def test_it_counts_drafts_by_context_as_its_language_has_them(tmp_path: Path) -> None:
    counters = CountersWriter(str(tmp_path / "counters"), max_batch=8, max_depth=3)
    engine = SimulatedEngine(
        max_batch=8,
        depth=3,
        table=None,
        hook=SchedulerHook(DepthFile("", pod="", max_depth=3), counters, None),
        observer=Counting(),
        plant=Plant(step_s=0.0, token_s=1e-5, draft_s=0.0, draft_request_s=0.0),
        clock=time.perf_counter,
    )
    task = asyncio.create_task(engine.run())
    prompts = {"short": [EASY.first_token] * 30, "long": [HARD.first_token] * 2040}
    requests = [engine.submit(name, prompt, 40) for name, prompt in prompts.items()]
    for request in requests:
        await request.done.wait()
    task.cancel()

    found = read_counts(str(tmp_path / "counters"))
    assert found is not None
    expected: dict[int, list[int]] = {0: [0, 0, 0, 0], 2048: [0, 0, 0, 0]}
    for request in requests:
        emitted = 1
        while emitted < 40:
            right = request.traffic.accepted(request.tokens[emitted - 1], 3)
            sums = expected[2048 if request.prompt_tokens + emitted - 1 >= 2048 else 0]
            for at, count in enumerate((1, 3, right, right > 0)):
                sums[at] += count
            emitted += 1 + right
    assert {
        each.context_ge: [each.drafts, each.tokens, each.accepted, each.first_accepted]
        for each in found.contexts
    } == expected
