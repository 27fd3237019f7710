"""What the states of a hybrid target cost, in numbers."""

from typing import Any

import pytest

from fathom.model_facts import NO_MODEL, ModelConfig, ModelFacts
from fathom.model_refs import ModelRef
from fathom.validation.candidate import as_sized, candidate_of
from fathom.validation.engine_checks import memory_of_states
from fathom.validation.gpu_memory_checks import kv_bytes_per_token, state_cost
from fathom.validation.model_input import preflight_input
from fathom_intake.model_weights import Weights
from manifest_samples import resource

MIB, GIB = 1 << 20, 1 << 30
QWEN: dict[str, Any] = {
    "architectures": ["Qwen3_5ForConditionalGeneration"],
    "model_type": "qwen3_5",
    "text_config": {
        "num_hidden_layers": 64,
        "num_attention_heads": 24,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "mtp_num_hidden_layers": 1,
        "linear_num_key_heads": 16,
        "linear_num_value_heads": 48,
        "linear_key_head_dim": 128,
        "linear_value_head_dim": 128,
        "linear_conv_kernel_dim": 4,
        "full_attention_interval": 4,
        "mamba_ssm_dtype": "float32",
    },
}
NO_PREFIXES = ["--no-enable-prefix-caching"]
SPEC: dict[str, Any] = {
    "model.id": "org/target",
    "draft.id": None,
    "draft.method": "mtp",
    "speculation.tokens": 2,
    "engine.tensorParallelSize": 1,
    "nodePool.accelerator": "H100",
}


def facts(config: dict[str, Any] | None = None, weights: int | None = None) -> ModelFacts:
    return ModelFacts(
        config=ModelConfig.from_json(config or QWEN), weights=Weights(total_bytes=weights)
    )


@pytest.mark.parametrize(
    ("args", "depth", "mib"),
    [
        (NO_PREFIXES, 2, 446),
        (NO_PREFIXES, 3, 598),
        (NO_PREFIXES, 7, 1227),
        ([], 2, 595),
        ([], 3, 748),
        ([], 7, 1380),
    ],
)
def test_as_many_bytes_as_vllm_takes(args: list[str], depth: int, mib: int) -> None:
    spec = SPEC | {"speculation.maxTokens": depth, "engine.args": args}
    cost = state_cost(preflight_input(resource(spec).engine, facts(), NO_MODEL))

    assert cost is not None
    assert cost.states == 1 + depth
    assert cost.request_bytes is not None
    assert round(cost.request_bytes / MIB) == mib


def test_only_layers_with_attention_have_a_kv_cache() -> None:
    config = ModelConfig.from_json(QWEN)
    assert kv_bytes_per_token(config, 1, 2) == 2 * 16 * 4 * 256 * 2


def test_multi_head_latent_attention_keeps_a_latent_and_a_rotary_key_on_each_gpu() -> None:
    """The numbers of DeepSeek V3."""
    config = {"num_hidden_layers": 61, "kv_lora_rank": 512, "qk_rope_head_dim": 64}
    for gpus in (1, 8):
        assert kv_bytes_per_token(ModelConfig.from_json(config), gpus, 2) == 61 * (512 + 64) * 2


@pytest.mark.parametrize(
    ("config", "attention", "states"),
    [
        ({"layer_types": ["linear_attention"] * 3 + ["full_attention"]}, 16, 48),
        ({"layers_block_type": ["mamba", "moe", "attention", "mlp"]}, 16, 16),
        ({"hybrid_override_pattern": "MEM*" * 16}, 16, 32),
        ({"attn_type_list": [0, 0, 0, 1]}, 16, 48),
        ({"linear_attn_config": {"kda_layers": list(range(1, 41))}}, 24, 40),
        ({"model_type": "falcon_h1"}, 64, 64),
        ({"model_type": "mamba2"}, 0, 64),
    ],
    ids=str,
)
def test_hybrids_say_it_in_several_ways(
    config: dict[str, Any], attention: int, states: int
) -> None:
    found = ModelConfig.from_json({"num_hidden_layers": 64} | config).hybrid
    assert found is not None
    assert (found.attention, found.states) == (attention, states)


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"layer_types": ["sliding_attention", "full_attention"] * 32},
        {"full_attention_interval": 4},
    ],
    ids=str,
)
def test_other_models_keep_no_states(config: dict[str, Any]) -> None:
    assert ModelConfig.from_json({"num_hidden_layers": 64} | config).hybrid is None


def warnings(spec: dict[str, Any], weights: int | None = 27 * GIB) -> list[str]:
    models = {ModelRef("org/target"): facts(weights=weights)}
    return [each.message for each in memory_of_states(candidate_of(resource(spec), models))]


def test_room_for_deeper_drafts_is_said_in_numbers() -> None:
    spec = SPEC | {
        "speculation.maxTokens": 7,
        "engine.args": [*NO_PREFIXES, "--max-num-seqs", "24"],
    }
    (said,) = warnings(spec)
    assert said.startswith(
        "the target keeps a state for each token that a request may draft, whatever it drafts: "
        "space for depth 7 takes 8 states a request, for depth 2 only 3 (1,227 MiB of each GPU, "
        "for 446): "
    )
    assert "of them fit at once, for" in said
    # Of a target whose weights are not known nobody can tell how many fit.
    assert "requests fit" not in warnings(spec, weights=None)[0]


def test_as_many_states_as_requests_are_needed_at_start() -> None:
    (said,) = warnings(SPEC | {"speculation.maxTokens": 2, "engine.args": NO_PREFIXES})
    assert "vLLM does not start with fewer than --max-num-seqs (1024)" in said
    # A block holds states of as many layers as have attention: 16 of 48.
    for few in ("32", "512"):
        args = [*NO_PREFIXES, "--max-num-seqs", few]
        assert warnings(SPEC | {"speculation.maxTokens": 2, "engine.args": args}) == []


def test_a_new_resource_has_room_for_tokens() -> None:
    models = {ModelRef("org/target"): facts()}
    assert as_sized(resource(SPEC), models).engine.deepest == 2
    static = resource(SPEC | {"speculation.tuning.mode": "Static"})
    assert as_sized(static, models) is static
    assert as_sized(resource(SPEC), {}).engine.deepest == 7


def test_arguments_of_a_hybrid_target_are_a_sign_where_nothing_is_at_hand() -> None:
    states = resource(SPEC | {"engine.args": ["--mamba-cache-mode", "align"]})
    assert as_sized(states, {}).engine.deepest == 2
    plain = ModelFacts(config=ModelConfig(layers=2))
    assert as_sized(states, {ModelRef("org/target"): plain}).engine.deepest == 7
