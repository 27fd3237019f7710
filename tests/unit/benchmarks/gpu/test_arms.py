"""How the engines are started: as the operator would."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.gpu.arms import RenderedSetup, depths_of, live_setup, single_setup
from benchmarks.gpu.machine import Machine
from local_cluster.engine.model_pair import ModelPair
from local_cluster.engine.process import Part

PAIR = ModelPair(Path("/models/target"), Path("/models/draft"))
PYTHON = Path("/venv/bin/python")
H100 = Machine(vllm="0.32.0", gpu="NVIDIA H100", capability=9, python=PYTHON)
B200 = H100.model_copy(update={"capability": 10})
CPU = Machine(vllm="0.32.0", gpu="", capability=0, python=PYTHON)


def last(setup: RenderedSetup, option: str) -> str:
    arguments = setup.arguments(8123)
    return arguments[len(arguments) - arguments[::-1].index(option)]


def speculative(setup: RenderedSetup) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(last(setup, "--speculative-config"))
    return found


def test_the_live_engine_has_its_depths_sizes_and_schedule() -> None:
    setup = live_setup(H100, PAIR)

    assert setup.command == ("/venv/bin/vllm", "serve", "/models/target")
    schedule = speculative(setup)["num_speculative_tokens_per_batch_size"]
    assert sorted(depth for _, _, depth in schedule) == [0, 1, 3, 7]
    assert json.loads(last(setup, "--compilation-config"))["cudagraph_capture_sizes"][-1] == 512
    assert last(setup, "--scheduler-cls") == "benchmarks.gpu.probe.Live"
    assert (last(setup, "--host"), last(setup, "--port")) == ("127.0.0.1", "8123")
    assert (setup.max_depth, setup.max_batch, setup.part) == (7, 256, Part.LOGGER)


def test_sizes_are_those_of_the_gpu() -> None:
    sizes = json.loads(last(live_setup(B200, PAIR), "--compilation-config"))
    assert sizes["cudagraph_capture_sizes"][-1] == 1024


def test_an_engine_of_one_depth_has_nothing_of_live_depth() -> None:
    setup = single_setup(H100, PAIR, 7)

    assert speculative(setup) == {
        "method": "eagle3",
        "model": "/models/draft",
        "num_speculative_tokens": 7,
    }
    assert "--compilation-config" not in setup.arguments(8123)
    assert last(setup, "--scheduler-cls") == "benchmarks.gpu.probe.Stock"
    assert (setup.depth, setup.part) == (7, Part.NOTHING)


def test_depth_0_alone_is_no_speculation_and_else_the_same() -> None:
    without = single_setup(H100, PAIR, 0)
    config = single_setup(H100, PAIR, 1).arguments(8123)
    at = config.index("--speculative-config")

    assert without.depth == 0
    assert without.arguments(8123) == config[:at] + config[at + 2 :]


@pytest.mark.parametrize("machine", [H100, B200, CPU])
def test_the_same_depths_are_compared_everywhere(machine: Machine) -> None:
    assert depths_of(machine, PAIR) == (0, 1, 3, 7)


def test_on_the_cpu_nothing_is_captured() -> None:
    arguments = live_setup(CPU, PAIR).arguments(8123)

    assert "--enforce-eager" in arguments
    assert "--compilation-config" not in arguments
    assert "--gpu-memory-utilization" not in arguments
