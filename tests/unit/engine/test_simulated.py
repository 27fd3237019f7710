"""The simulated engine's command line and plant; its behaviour is in the contract tests."""

import json

import pytest

from fathom_local.engine.plant import Plant
from fathom_local.engine.simulated import parse_arguments
from fathom_local.engine.walk import EASY, HARD
from fathom_vllm.bundle import SCHEDULER_CLASS


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
