"""The race: what its engines are, who runs when, and what is said of it."""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks.engine.arms import settings_for
from benchmarks.gpu.arms import race_setups
from benchmarks.gpu.machine import Machine
from benchmarks.gpu.race import (
    FEWEST_ROUNDS,
    TUNED,
    RacePlan,
    RaceTraffic,
    cause,
    decided,
    quick_race,
    race_table,
    run_race,
    tuned_over,
)
from benchmarks.gpu.race import ON_A_GPU as PLAN
from local_cluster.engine.language import EASY, HARD
from local_cluster.engine.model_pair import ModelPair
from local_cluster.engine.process import simulated_setup
from local_cluster.engine.traffic import Phase
from local_cluster.errors import LocalClusterError

PAIR = ModelPair(Path("/models/target"), Path("/models/draft"))
H100 = Machine(vllm="0.32.0", gpu="NVIDIA H100", capability=9, python=Path("/venv/bin/python"))
SHORT = RacePlan(
    traffic=(RaceTraffic("mixed × 2", (Phase(EASY, 1), Phase(HARD, 1))),),
    adapt_seconds=0.6,
    turn_seconds=0.6,
    most_rounds=2,
)


def test_all_engines_share_the_gpu_and_are_started_as_the_operator_does() -> None:
    setups = race_setups(H100, PAIR)
    assert [*setups] == [
        TUNED, "static 3", "static 7", "no speculation", "adaptive verification",
    ]  # fmt: skip
    commands = {name: each.arguments(8000) for name, each in setups.items()}
    for arguments in commands.values():
        assert arguments[arguments.index("--gpu-memory-utilization") + 1] == "0.16"
    assert "LiveDepthScheduler" in " ".join(commands[TUNED])
    assert "--scheduler-cls" not in commands["static 3"]
    assert "--speculative-config" not in commands["no speculation"]
    adaptive = commands["adaptive verification"]
    config = json.loads(adaptive[adaptive.index("--speculative-config") + 1])
    assert (config["num_speculative_tokens"], config["enable_adaptive_verification"]) == (7, True)


def test_the_tuner_may_choose_what_the_engine_has() -> None:
    settings = settings_for(race_setups(H100, PAIR)[TUNED], 5, (0, 1, 3, 7))
    assert (settings.tokens, settings.depths, settings.window_seconds) == (3, (0, 1, 3, 7), 5)


def test_a_turn_holds_two_windows_so_that_a_move_can_be_taken_back_in_it() -> None:
    assert PLAN.turn_seconds >= 2 * PLAN.window_seconds
    assert quick_race(PLAN).seconds(5) < PLAN.seconds(5) / 10


def steady(ratio: float, rounds: int, scatter: float = 0.0) -> Mapping[str, Sequence[float]]:
    ours = [1000.0 * (1 + (scatter if at % 2 else -scatter)) for at in range(rounds)]
    return {TUNED: ours, "static 3": [1000.0 / ratio] * rounds}


def test_it_is_over_when_each_ratio_is_known_to_a_few_percent() -> None:
    assert tuned_over(steady(1.5, 4))["static 3"].estimate == pytest.approx(1.5)
    assert decided(steady(1.5, FEWEST_ROUNDS, 0.001))
    assert not decided(steady(1.5, FEWEST_ROUNDS - 1, 0.001))
    assert not decided(steady(1.5, 12, 0.3))


@pytest.mark.parametrize(
    ("log", "said"),
    [
        ("starting\nValueError: no memory\n  For further errors https://x.dev/error\n",
         "ValueError: no memory"),
        ("killed\n\n", "killed"),
        ("", ""),
    ],
)  # fmt: skip
def test_why_an_engine_is_left_out_is_the_line_that_says_so(log: str, said: str) -> None:
    assert cause(log) == said


def test_engines_take_turns_and_one_that_does_not_start_is_left_out() -> None:
    console = Console(record=True, width=130)
    broken = "print('RuntimeError: no such GPU'); raise SystemExit(1)"
    setups = {
        TUNED: simulated_setup(),
        "static 3": simulated_setup(),
        "other": replace(simulated_setup(), command=(sys.executable, "-c", broken)),
    }
    report = run_race(console, "a simulation", setups, range(8), SHORT, quick=False)
    (result,) = report.results
    assert {name: len(each) for name, each in result.tokens_per_second.items()} == {
        TUNED: 2, "static 3": 2,
    }  # fmt: skip
    assert min(rate for each in result.tokens_per_second.values() for rate in each) > 0
    assert report.requests > 0
    assert (report.requests_wrong, report.first_error) == (0, "")
    assert report.left_out == {"other": "RuntimeError: no such GPU"}
    console.print(race_table(report))
    text = console.export_text()
    assert "other did not start: RuntimeError: no such GPU" in text
    assert "mixed × 2" in text


def test_without_the_tuned_engine_there_is_no_race() -> None:
    broken = replace(simulated_setup(), command=(sys.executable, "-c", "raise SystemExit(1)"))
    with pytest.raises(LocalClusterError, match="The tuned engine did not start"):
        run_race(Console(quiet=True), "a simulation", {TUNED: broken}, (3,), SHORT, quick=False)
