"""Data parallelism over two nodes: where workers are probed, a port is open with experts alone.

Asked of vLLM itself, up to where its ranks meet. With whole engines the same was seen on a CPU:
vLLM 0.32 listens at its HTTP port alone with a dense model, and at the ranks' port as well with one
of experts.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from fathom.engine.flags import engine_args
from fathom.engine.replica_layout import LEADER_ADDRESS, WORKER_INDEX, Role
from fathom.model_facts import ModelConfig
from local_cluster.engine.releases import asked_releases
from manifest_samples import resource
from support.asked_vllm import AskVllm
from support.tiny_models import write_models

pytestmark = [pytest.mark.engine, pytest.mark.xdist_group("asked")]

PROBE: Final = Path(__file__).with_name("ranks_probe.py")
TWO_NODES: Final = {
    "engine.tensorParallelSize": 1,
    "engine.dataParallelSize": 2,
    "nodePool.accelerator": "Custom",
    "nodePool.gpusPerNode": 1,
    "speculation.drafting": "Disabled",
    "speculation.tuning.mode": "Static",
    "engine.args": ["--max-model-len", "1024"],
}
DENSE, SPARSE = "target", "mtp"
KINDS: Final[Mapping[str, Mapping[str, Any]]] = {
    "mixtral": {"num_local_experts": 4, "num_experts_per_tok": 2},
    "qwen3_moe": {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 8},
    "qwen3": {"num_experts": 0},
    "llama": {"num_local_experts": 0},
}
"""By model_type, the keys by which each says whether it has experts."""
ARCHITECTURES: Final = {
    "mixtral": "MixtralForCausalLM",
    "qwen3_moe": "Qwen3MoeForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "llama": "LlamaForCausalLM",
}


@dataclass(frozen=True)
class Told:
    directory: Path
    answer: Mapping[str, Any]

    def of(self, question: str, model: str) -> bool:
        found: bool = self.answer[question][str(self.directory / model)]
        return found


def commands() -> list[list[str]]:
    """What Fathom has each node run, its model left open."""
    engine = resource(TWO_NODES).engine
    meaning = {f"$({LEADER_ADDRESS})": "127.0.0.1", f"$({WORKER_INDEX})": "1"}
    return [
        ["MODEL", *(meaning.get(word, word) for word in engine_args(engine, role)[1:])]
        for role in Role
    ]


@pytest.fixture(scope="module", params=asked_releases(os.environ))
def told(
    request: pytest.FixtureRequest, ask_vllm: AskVllm, tmp_path_factory: pytest.TempPathFactory
) -> Told:
    """What one release of vLLM says."""
    directory = tmp_path_factory.mktemp("ranks")
    write_models(directory)
    for kind, keys in KINDS.items():
        config = json.loads((directory / DENSE / "config.json").read_text())
        config |= {"model_type": kind, "architectures": [ARCHITECTURES[kind]], **keys}
        (directory / kind).mkdir()
        (directory / kind / "config.json").write_text(json.dumps(config))
    models = [str(directory / each) for each in (DENSE, SPARSE, *KINDS)]
    question = {
        "models": models,
        "ranks": [str(directory / each) for each in (DENSE, SPARSE)],
        "commands": commands(),
    }
    return Told(directory, ask_vllm(PROBE, question, release=request.param))


def test_the_port_at_which_workers_are_probed_is_open_with_experts_alone(told: Told) -> None:
    assert told.of("opened", SPARSE)
    assert not told.of("opened", DENSE)


@pytest.mark.parametrize("model", [DENSE, SPARSE, *KINDS])
def test_fathom_knows_experts_as_vllm_does(told: Told, model: str) -> None:
    config = json.loads((told.directory / model / "config.json").read_text())

    assert ModelConfig.from_json(config).has_experts is told.of("experts", model)
