"""What each part costs, from turns."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.engine.parts import PartTurn, part_costs
from local_cluster.engine.model_pair import ModelPair
from local_cluster.engine.process import EngineSetup, Part, real_setup

TUNABLE = real_setup(Path("/venv"), ModelPair(Path("/models/target"), Path("/models/draft")))


def speculative(setup: EngineSetup) -> dict[str, object]:
    arguments = setup.arguments(8000)
    found: dict[str, object] = json.loads(arguments[arguments.index("--speculative-config") + 1])
    return found


def test_each_engine_is_held_against_the_first_turn_by_turn() -> None:
    slow, quick = 2000.0, 1000.0
    costs = part_costs(
        {
            "nothing": [PartTurn(slow, 100), PartTurn(quick, 200)],
            "more": [PartTurn(1.1 * slow, 90), PartTurn(1.1 * quick, 180)],
        }
    )
    assert [each.name for each in costs] == ["nothing", "more"]
    assert [each.step_us for each in costs] == [1500, pytest.approx(1650)]
    assert costs[1].over_nothing.estimate == pytest.approx(1.1)
    assert costs[1].over_nothing.low == pytest.approx(costs[1].over_nothing.high)
    assert costs[1].steps_over_nothing.estimate == pytest.approx(0.9)


def test_each_part_comes_on_top_of_those_before_it() -> None:
    nothing, schedule, depths, scheduler, logger = (replace(TUNABLE, part=each) for each in Part)
    assert "num_speculative_tokens_per_batch_size" not in speculative(nothing)
    assert speculative(schedule) == speculative(nothing) | {
        "num_speculative_tokens_per_batch_size": [[1, 16, 3]]
    }
    assert speculative(depths)["num_speculative_tokens"] == 7
    assert speculative(depths) == speculative(scheduler) == speculative(logger)
    assert "--scheduler-cls" not in depths.arguments(8000)
    assert scheduler.arguments(8000) == logger.arguments(8000) == TUNABLE.arguments(8000)
