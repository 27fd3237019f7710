"""Models without weights: enough for all that vLLM does before it loads them."""

import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

_SHAPE: Mapping[str, Any] = MappingProxyType(
    {
        "vocab_size": 128,
        "hidden_size": 256,
        "intermediate_size": 128,
        "num_hidden_layers": 4,
        # As many as the widest example has GPUs.
        "num_attention_heads": 16,
        "num_key_value_heads": 16,
        "head_dim": 16,
        "hidden_act": "silu",
        "max_position_embeddings": 1_048_576,
        "rms_norm_eps": 1e-6,
        "torch_dtype": "bfloat16",
    }
)
_LLAMA = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", **_SHAPE}
_ONE_LAYER = {**_LLAMA, "num_hidden_layers": 1}
_LAYER_IDS = {"target_layer_ids": [1, 2, 3], "mask_token_id": 1}
# MTP drafts come with their target: a model of a kind that has them.
_DEEPSEEK = {
    **_SHAPE,
    "architectures": ["DeepseekV3ForCausalLM"],
    "model_type": "deepseek_v3",
    "num_nextn_predict_layers": 1,
    "kv_lora_rank": 16,
    "q_lora_rank": 16,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 8,
    "v_head_dim": 8,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "n_shared_experts": 1,
    "moe_intermediate_size": 32,
    "first_k_dense_replace": 1,
    "n_group": 1,
    "topk_group": 1,
    "scoring_func": "sigmoid",
}
_DRAFTS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "eagle": _ONE_LAYER,
        "eagle3": {**_ONE_LAYER, "architectures": ["LlamaForCausalLMEagle3"]},
        "draft_model": _ONE_LAYER,
        "dflash": {
            **_ONE_LAYER,
            "architectures": ["DFlashDraftModel"],
            "model_type": "qwen3",
            "block_size": 8,
            "dflash_config": _LAYER_IDS,
        },
        "dspark": {
            **_ONE_LAYER,
            "architectures": ["Qwen3DSparkModel"],
            "model_type": "qwen3",
            "block_size": 7,
            "markov_rank": 8,
            "dflash_config": _LAYER_IDS,
        },
    }
)


# Reasoning parsers look for their markers in the target's vocabulary.
_MARKERS = ("<think>", "</think>", "<|tool_calls_section_begin|>")
_TOKENIZER = {
    "version": "1.0",
    "added_tokens": [
        {
            "id": index,
            "content": marker,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": True,
        }
        for index, marker in enumerate(_MARKERS)
    ],
    "model": {
        "type": "WordLevel",
        "vocab": {marker: index for index, marker in enumerate(_MARKERS)},
        "unk_token": _MARKERS[0],
    },
}


def write_models(directory: Path) -> None:
    """One directory for each model below `directory`."""
    models = {"target": _LLAMA, "mtp": _DEEPSEEK, **{f"{k}-draft": v for k, v in _DRAFTS.items()}}
    for name, config in models.items():
        (directory / name).mkdir(parents=True)
        (directory / name / "config.json").write_text(json.dumps(config))
        (directory / name / "tokenizer.json").write_text(json.dumps(_TOKENIZER))
        (directory / name / "tokenizer_config.json").write_text(
            json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"})
        )


def with_tiny_models(args: list[str], directory: Path) -> list[str]:
    """The same command with models that are there."""
    if "--speculative-config" not in args:
        return [str(directory / "target"), *args[1:]]
    at = args.index("--speculative-config") + 1
    config = json.loads(args[at])
    method = config["method"]
    if "model" in config:
        config["model"] = str(directory / f"{method}-draft")
    mixture = method == "mtp" or "--enable-expert-parallel" in args
    target = directory / ("mtp" if mixture else "target")
    return [str(target), *args[1:at], json.dumps(config), *args[at + 1 :]]
