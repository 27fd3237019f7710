"""What being tunable costs, from slices in turns."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.engine.price import PriceSlice, price_of
from local_cluster.engine.model_pair import ModelPair
from local_cluster.engine.process import EngineSetup, Part, real_setup


def one(steps: float, *, hook_seconds: float = 0.0, idle: float = 0.0) -> PriceSlice:
    return PriceSlice(
        seconds=10.0,
        steps=steps,
        tokens=3 * steps,
        hook_seconds=hook_seconds,
        busy_seconds=9.9 if hook_seconds else 0.0,
        idle_cpu_seconds=idle,
    )


def test_a_drift_of_the_machine_is_no_price() -> None:
    price = price_of(
        [one(1000), one(500), one(800)],
        [one(990, hook_seconds=0.03), one(495, hook_seconds=0.02), one(792, hook_seconds=0.04)],
    )
    assert price.steps_ratio.estimate == pytest.approx(0.99)
    assert price.steps_ratio.low == pytest.approx(price.steps_ratio.high)
    assert price.tokens_ratio.estimate == pytest.approx(0.99)
    assert (price.static_steps, price.tunable_steps) == (2300, 2277)


def test_hooks_are_set_against_step_time_of_the_engine_that_has_them() -> None:
    price = price_of(
        [one(1000), one(1000)], [one(1000, hook_seconds=0.0198), one(1000, hook_seconds=0.0396)]
    )
    assert price.hook_overhead_percent == pytest.approx(0.3)


def test_an_idle_engine_that_is_not_idle_shows() -> None:
    price = price_of([one(1, idle=1.0)] * 2, [one(1, hook_seconds=0.1, idle=0.2)] * 2)
    assert price.idle_cpu_percent == pytest.approx(6.0)


PAIR = ModelPair(Path("/models/target"), Path("/models/draft"))


def speculative(setup: EngineSetup) -> dict[str, object]:
    arguments = setup.arguments(8000)
    found: dict[str, object] = json.loads(arguments[arguments.index("--speculative-config") + 1])
    return found


def test_the_static_engine_is_the_same_but_for_what_makes_it_tunable() -> None:
    tunable = real_setup(Path("/venv"), PAIR)
    static = replace(tunable, part=Part.NOTHING)
    assert speculative(static) == {
        "method": "eagle3",
        "num_speculative_tokens": 3,
        "model": "/models/draft",
    }
    assert speculative(tunable)["num_speculative_tokens"] == 7
    only_tunable = set(tunable.arguments(8000)) - set(static.arguments(8000))
    assert {"--scheduler-cls", tunable.scheduler_cls} < only_tunable
    assert len(only_tunable) == 3  # and the speculative config
