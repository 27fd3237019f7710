"""Run by vLLM's Python: what vLLM itself says of pairs and names, as JSON on stdout.

No weights and no GPU: an engine's configuration is made, and nothing is started.
"""

import json
import logging
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from vllm.config import LoadConfig, VllmConfig, set_current_vllm_config
from vllm.distributed import (
    init_distributed_environment,
    initialize_model_parallel,
    model_parallel_is_initialized,
)
from vllm.engine.arg_utils import EngineArgs
from vllm.model_executor.layers.mamba.mamba_utils import MambaStateShapeCalculator
from vllm.model_executor.model_loader.default_loader import DefaultModelLoader
from vllm.model_executor.models.interfaces import supports_eagle3
from vllm.model_executor.models.registry import ModelRegistry
from vllm.v1.kv_cache_interface import MambaSpec
from vllm.v1.worker.gpu.spec_decode.eagle.eagle3_utils import get_eagle3_aux_layers_from_config


def configured(case: dict[str, Any]) -> VllmConfig:
    """The configuration of an engine of a pair."""
    return EngineArgs(
        model=case["target"],
        tokenizer=case["target"],
        skip_tokenizer_init=True,
        tensor_parallel_size=case["gpus"],
        speculative_config=case["speculative"],
        dtype="bfloat16",
        max_model_len=1024,
        enforce_eager=True,
        language_model_only=True,
        trust_remote_code=case.get("trusted", False),
    ).create_engine_config()


def refusal(case: dict[str, Any]) -> str:
    """Why vLLM refuses a pair when it reads both config.json files; empty: it does not."""
    try:
        configured(case)
    except Exception as error:  # noqa: BLE001 - whatever stops vLLM is the answer
        return f"{type(error).__name__}: {error}"
    return ""


def drafts(cases: dict[str, Any]) -> dict[str, Any]:
    """What vLLM makes of drafts: layers that it reads, space for them, and positions."""
    if cases:
        init_distributed_environment(1, 0, "tcp://127.0.0.1:0", 0, "gloo")
    told = {}
    for name, case in cases.items():
        config = configured(case)
        hf_config = config.speculative_config.draft_model_config.hf_config
        draft = ModelRegistry.models[hf_config.architectures[0]].load_model_cls()
        with set_current_vllm_config(config):
            if not model_parallel_is_initialized():
                initialize_model_parallel()
            with torch.device("meta"):
                model = draft(vllm_config=config).model
        named = ("num_aux_hidden_states", "num_aux_layers")
        told[name] = {
            "layers": get_eagle3_aux_layers_from_config(config.speculative_config) or (),
            "cost": next(getattr(model, each) for each in named if hasattr(model, each)),
            "positions": hf_config.max_position_embeddings,
        }
    return told


def loaded(cases: dict[str, Any]) -> dict[str, str]:
    """Why vLLM's classes do not load drafts with these tensors; empty: they do."""
    told = {}
    for name, case in cases.items():
        config = configured(case)
        hf_config = config.speculative_config.draft_model_config.hf_config
        draft = ModelRegistry.models[hf_config.architectures[0]].load_model_cls()
        with set_current_vllm_config(config):
            model = draft(vllm_config=config)
            told[name] = ""
            try:
                model.load_weights(
                    (tensor, torch.zeros(shape, dtype=getattr(torch, dtype)))
                    for tensor, (dtype, shape) in case["tensors"].items()
                )
            except Exception as error:  # noqa: BLE001 - whatever stops vLLM is the answer
                told[name] = f"{type(error).__name__}: {error}"
    return told


def files(folders: dict[str, str]) -> dict[str, str]:
    """Which files vLLM reads the weights from, or why it reads none."""
    loader = DefaultModelLoader(LoadConfig())
    told = {}
    for name, folder in folders.items():
        try:
            _, found, *_ = loader._prepare_weights(
                folder, None, None, fall_back_to_pt=True, allow_patterns_overrides=None
            )
            told[name] = " ".join(sorted(Path(each).name for each in found))
        except Exception as error:  # noqa: BLE001 - as above
            told[name] = f"{type(error).__name__}: {error}"
    return told


def code(cases: dict[str, Any]) -> dict[str, bool]:
    """Whether code of a draft's folder runs while the configuration is made."""
    told = {}
    for name, case in cases.items():
        configured(case)
        marker = Path(case["marker"])
        told[name] = marker.exists()
        marker.unlink(missing_ok=True)
    return told


def states(cases: dict[str, Any]) -> dict[str, int]:
    """Bytes on one GPU that all states of a request take, as vLLM's own classes count them."""
    told = {}
    for name, case in cases.items():
        shape = getattr(MambaStateShapeCalculator, case["kind"])(*case["sizes"], case["depth"])
        spec = MambaSpec(
            shapes=shape,
            dtypes=(torch.bfloat16, torch.float32),
            block_size=1,
            mamba_cache_mode=case["mode"],
            num_speculative_blocks=case["depth"],
        )
        cache = SimpleNamespace(cache_config=SimpleNamespace(mamba_cache_mode=case["mode"]))
        told[name] = case["layers"] * spec.max_memory_usage_bytes(cache)
    return told


def eagle3_target(name: str) -> bool:
    """Whether a model's class gives hidden states to EAGLE 3."""
    return supports_eagle3(ModelRegistry.models[name].load_model_cls())


def main() -> None:
    logging.disable(logging.CRITICAL)
    asked = json.load(sys.stdin)
    told = {
        "refusals": {name: refusal(case) for name, case in asked["pairs"].items()},
        "eagle3_targets": {name: eagle3_target(name) for name in asked["targets"]},
        "drafts": drafts(asked["drafts"]),
        "loaded": loaded(asked["weights"]),
        "files": files(asked["files"]),
        "code": code(asked["code"]),
        "states": states(asked["states"]),
        "known": sorted(ModelRegistry.models),
    }
    print(json.dumps(told))


if __name__ == "__main__":
    main()
