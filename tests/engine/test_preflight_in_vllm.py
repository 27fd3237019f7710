"""Fathom's preflight against what vLLM itself says of the same config.json files."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from fathom.model_facts import ModelConfig, ModelFacts
from fathom.validation.gpu_memory_checks import state_cost
from fathom.validation.hidden_state_checks import aux_layers_of
from fathom.validation.model_input import preflight_input
from fathom.validation.pair_checks import TARGETS_WITHOUT_EAGLE3, knows_eagle3_draft
from local_cluster.engine.releases import asked_releases
from manifest_samples import resource
from support.asked_vllm import AskVllm
from support.model_pairs import NAMES, Pair

pytestmark = [pytest.mark.engine, pytest.mark.xdist_group("asked")]

PROBE: Final = Path(__file__).with_name("preflight_probe.py")

SAYS: Final = {
    "deepseek-mtp": "ZeroDivisionError: integer modulo by zero",
    "draft-model": "should have the same vocabulary size",
    "gpt-oss-eagle3": "['Eagle3GptOssForCausalLM'] are not supported",
    "qwen3-moe-eagle3": "attention heads (2) must be divisible by tensor parallel size (4)",
}
"""Errors of broken pairs, in vLLM's words."""
NOTICED_LATER: Final = {"kimi-eagle3.1-mla", "llama-eagle3"}
"""Broken pairs whose configuration vLLM accepts: one that only an old engine gets wrong, and one
that fails when the first hidden states arrive."""


def case(pair: Pair) -> dict[str, Any]:
    """A pair as vLLM gets it."""
    speculative = {
        "method": pair.spec.get("draft.method", "eagle3"),
        "num_speculative_tokens": 7,
    }
    if pair.draft is not None:
        speculative["model"] = str(pair.directory / "draft")
    return {
        "target": str(pair.directory / "target"),
        "gpus": pair.spec.get("engine.tensorParallelSize", 4),
        "speculative": speculative,
    }


TARGET: Final[Mapping[str, Any]] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "num_hidden_layers": 12,
    "vocab_size": 256,
    "max_position_embeddings": 4096,
    # In the speculators format nothing has a default.
    "hidden_act": "silu",
    "rms_norm_eps": 1e-6,
    "attention_bias": False,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
}
DRAFT: Final = {
    **TARGET,
    "architectures": ["LlamaForCausalLMEagle3"],
    "num_hidden_layers": 1,
    "max_position_embeddings": 512,
}
FOUR: Final = [2, 4, 6, 9]


def speculators(**layers: Any) -> Mapping[str, Any]:
    """A draft in the speculators format."""
    proposal = {"proposal_type": "greedy", "speculative_tokens": 3}
    return {
        "architectures": ["Eagle3DraftModel"],
        "speculators_model_type": "eagle3",
        "draft_vocab_size": 256,
        "eagle_aux_hidden_state_layer_ids": FOUR,
        "num_aux_hidden_states": 2,
        "speculators_config": {
            "algorithm": "eagle3",
            "default_proposal_method": "greedy",
            "proposal_methods": [proposal],
            "verifier": {"name_or_path": "some/target", "architectures": TARGET["architectures"]},
        },
        "transformer_layer_config": {**DRAFT, **layers},
    }


DRAFTS: Final[Mapping[str, Mapping[str, Any]]] = {
    "none named": DRAFT,
    "at the top": {**DRAFT, "eagle_aux_hidden_state_layer_ids": FOUR},
    "counted": {**DRAFT, "eagle_aux_hidden_state_layer_ids": FOUR, "num_aux_hidden_states": 4},
    "in eagle_config": {**DRAFT, "eagle_config": {"eagle_aux_hidden_state_layer_ids": FOUR}},
    "speculators": speculators(),
    "speculators, counted": speculators(num_aux_hidden_states=4),
    "speculators, qwen3": speculators(model_type="qwen3", head_dim=32),
}


DELTA_NET: Final = {
    "num_hidden_layers": 48,
    "full_attention_interval": 4,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 48,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_conv_kernel_dim": 4,
    "mamba_ssm_dtype": "float32",
}
MAMBA: Final = {
    "num_hidden_layers": 8,
    "hybrid_override_pattern": "MEMEM*ME",
    "mamba_num_heads": 128,
    "mamba_head_dim": 64,
    "n_groups": 6,
    "ssm_state_size": 128,
    "conv_kernel": 4,
}
STATES: Final = {
    f"{kind} {mode} {depth} on {gpus}": {
        "kind": kind,
        "sizes": (gpus, *sizes),
        "layers": layers,
        "depth": depth,
        "mode": mode,
        "gpus": gpus,
        "config": config,
    }
    for kind, sizes, layers, config in (
        ("gated_delta_net_state_shape", (16, 48, 128, 128, 4), 36, DELTA_NET),
        ("mamba2_state_shape", (128 * 64, 6, 128, 64, 128, 4), 4, MAMBA),
    )
    for mode, depth, gpus in (("none", 2, 1), ("align", 7, 8))
}


@pytest.fixture(scope="module", params=asked_releases(os.environ))
def told(
    request: pytest.FixtureRequest, ask_vllm: AskVllm, tmp_path_factory: pytest.TempPathFactory
) -> Mapping[str, Any]:
    """What one release of vLLM says."""
    folder = tmp_path_factory.mktemp("drafts")
    for name, config in {"target": TARGET, **DRAFTS}.items():
        (folder / name).mkdir()
        (folder / name / "config.json").write_text(json.dumps(config), encoding="utf-8")
    pairs = {
        f"{kind}/{name}": case(Pair.read(kind, name))
        for kind in ("good", "broken")
        for name in NAMES
    }
    drafts = {
        name: {
            "target": str(folder / "target"),
            "gpus": 1,
            "speculative": {
                "method": "eagle3",
                "model": str(folder / name),
                "num_speculative_tokens": 3,
            },
        }
        for name in DRAFTS
    }
    question = {
        "pairs": pairs,
        "targets": sorted(TARGETS_WITHOUT_EAGLE3),
        "drafts": drafts,
        "states": STATES,
    }
    found: Mapping[str, Any] = ask_vllm(PROBE, question, release=request.param)
    return {**found, "release": request.param}


@pytest.mark.parametrize("name", DRAFTS)
def test_layers_room_and_positions_are_as_vllm_has_them(told: Mapping[str, Any], name: str) -> None:
    spec = {"engine.image": f"vllm/vllm-openai:v{told['release']}", "draft.id": "some/draft"}
    target, draft = (
        ModelFacts(config=ModelConfig.from_json(each)) for each in (TARGET, DRAFTS[name])
    )
    found = aux_layers_of(preflight_input(resource(spec).engine, target, draft))

    assert found is not None
    theirs = told["drafts"][name]
    assert theirs["layers"] == (list(found.layers or ()) if found.named else [])
    assert theirs["cost"] == found.capacity
    # Stretched to --max-model-len, as `draft_positions` has it.
    assert theirs["positions"] == 1024


@pytest.mark.parametrize("name", NAMES)
def test_vllm_takes_the_good_pairs(told: Mapping[str, Any], name: str) -> None:
    assert told["refusals"][f"good/{name}"] == ""


@pytest.mark.parametrize("name", sorted(SAYS))
def test_vllm_refuses_what_fathom_refuses(told: Mapping[str, Any], name: str) -> None:
    assert SAYS[name] in told["refusals"][f"broken/{name}"]


@pytest.mark.parametrize("name", sorted(NOTICED_LATER))
def test_some_of_it_vllm_notices_late_or_never(told: Mapping[str, Any], name: str) -> None:
    assert told["refusals"][f"broken/{name}"] == ""


@pytest.mark.parametrize("name", STATES)
def test_states_are_as_large_as_vllm_has_them(told: Mapping[str, Any], name: str) -> None:
    case = STATES[name]
    spec = {
        "engine.tensorParallelSize": case["gpus"],
        "engine.args": ["--no-enable-prefix-caching"] if case["mode"] == "none" else [],
        "speculation.tokens": case["depth"],
        "speculation.maxTokens": case["depth"],
    }
    target = ModelFacts(config=ModelConfig.from_json(case["config"]))
    cost = state_cost(preflight_input(resource(spec).engine, target, ModelFacts()))

    assert cost is not None
    assert cost.request_bytes == told["states"][name]


def test_the_targets_without_eagle_3_are_those_of_vllm(told: Mapping[str, Any]) -> None:
    assert [name for name, able in told["eagle3_targets"].items() if able] == []


def test_every_eagle_3_draft_that_vllm_has_is_known(told: Mapping[str, Any]) -> None:
    theirs = {name for name in told["known"] if name.startswith("Eagle3") or "Eagle3" in name}

    unknown = {
        name for name in theirs if not knows_eagle3_draft(ModelConfig(architectures=(name,)))
    }

    assert theirs
    assert unknown == set()
