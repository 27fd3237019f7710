"""Run by vLLM's Python: what vLLM itself says of pairs and names, as JSON on stdout.

No weights and no GPU: an engine's configuration is made, and nothing is started.
"""

import json
import logging
import sys
from typing import Any

from vllm.engine.arg_utils import EngineArgs
from vllm.model_executor.models.interfaces import supports_eagle3
from vllm.model_executor.models.registry import ModelRegistry


def refusal(case: dict[str, Any]) -> str:
    """Why vLLM refuses a pair when it reads both config.json files; empty: it does not."""
    try:
        EngineArgs(
            model=case["target"],
            tokenizer=case["target"],
            skip_tokenizer_init=True,
            tensor_parallel_size=case["gpus"],
            speculative_config=case["speculative"],
            dtype="bfloat16",
            max_model_len=1024,
            enforce_eager=True,
            language_model_only=True,
        ).create_engine_config()
    except Exception as error:  # noqa: BLE001 - whatever stops vLLM is the answer
        return f"{type(error).__name__}: {error}"
    return ""


def eagle3_target(name: str) -> bool:
    """Whether a model's class gives hidden states to EAGLE 3."""
    return supports_eagle3(ModelRegistry.models[name].load_model_cls())


def main() -> None:
    logging.disable(logging.CRITICAL)
    asked = json.load(sys.stdin)
    told = {
        "refusals": {name: refusal(case) for name, case in asked["pairs"].items()},
        "eagle3_targets": {name: eagle3_target(name) for name in asked["targets"]},
        "known": sorted(ModelRegistry.models),
    }
    print(json.dumps(told))


if __name__ == "__main__":
    main()
