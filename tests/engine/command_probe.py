"""Asks a real vLLM what it makes of command lines, as far as a machine without a GPU can tell.

Run by the Python of an engine's environment, never by that of the tests. Reads a JSON list of
argument lists, writes one JSON list of answers on the last line. Each list is asked as
`fathom_measure.start_probe` asks; the answers also have what vLLM made of what it takes.
"""

import ast
import importlib
import importlib.util
import inspect
import json
import sys
from pathlib import Path

import vllm.config.vllm as vllm_config
from vllm.v1.attention.backends.registry import AttentionBackendEnum

from fathom_measure.start_probe import Vllm, as_on_a_gpu, plain


def ask(vllm: Vllm, args: list[str]) -> dict[str, object]:
    parsed = vllm.parsed(args)
    if isinstance(parsed, str):
        return refused("parser", parsed)
    parsed.model_tag = parsed.model_tag or parsed.model  # as `vllm serve` has it
    try:
        config = vllm.configured(parsed)
    except Exception as error:  # noqa: BLE001 - whatever vLLM says is the answer
        return refused("configuration", plain(error))
    try:
        kv_cache = kv_cache_hash(config)
    except Exception as error:  # noqa: BLE001 - see above
        return refused("KV transfer", str(error))
    speculative = config.speculative_config
    backend = config.attention_config.backend
    adaptive = getattr(speculative, "enable_adaptive_verification", False)
    if adaptive and backend is not None and (support := cuda_graph_support(backend)) != {"ALWAYS"}:
        return refused(
            "attention backend",
            f"adaptive verification needs CUDA graphs for any lengths: {backend} {support}",
        )
    return {
        "refused_by": None,
        "error": "",
        "config": {
            "method": getattr(speculative, "method", None),
            "depth": getattr(speculative, "num_speculative_tokens", None),
            "schedule": getattr(speculative, "num_speculative_tokens_per_batch_size", None),
            "adaptive": adaptive,
            "runner": "V2" if getattr(config, "use_v2_model_runner", False) else "V1",
            "graphs": config.compilation_config.cudagraph_mode.name,
            "draft_tensor_parallel_size": getattr(speculative, "draft_tensor_parallel_size", None),
            "tensor_parallel_size": config.parallel_config.tensor_parallel_size,
            "pipeline_parallel_size": config.parallel_config.pipeline_parallel_size,
            "max_num_seqs": config.scheduler_config.max_num_seqs,
            "scheduler_cls": config.scheduler_config.scheduler_cls,
            "shutdown_timeout": config.shutdown_timeout,
            "backend": backend and backend.name,
            "host": parsed.host,
            "port": parsed.port,
            "served_model_name": config.model_config.served_model_name,
            "trust_remote_code": config.model_config.trust_remote_code,
            "kv_cache_hash": kv_cache,
        },
    }


def kv_cache_hash(config: vllm_config.VllmConfig) -> str | None:
    """By what NIXL tells whether another engine may have this one's KV cache; None: none may.

    The attention backend is the one that is asked for, where an engine has the one that it chose.
    What a release lacks of it is an error: then it compares something else.
    """
    transfer = config.kv_transfer_config
    if transfer is None or not str(transfer.kv_connector).startswith("Nixl"):
        return None
    metadata = importlib.import_module("vllm.distributed.kv_transfer.kv_connector.v1.nixl.metadata")
    compute = metadata.compute_nixl_compatibility_hash
    # 0.28 asks whether a block holds all layers.
    asked = inspect.signature(compute).parameters
    older = {"cross_layers_blocks": False} if "cross_layers_blocks" in asked else {}
    backend = config.attention_config.backend
    return compute(config, backend.name if backend else "chosen", **older)


def cuda_graph_support(backend: AttentionBackendEnum) -> set[str]:
    """What the builders of a backend report, read from its source: most import CUDA libraries."""
    module = importlib.util.find_spec(backend.get_path().rpartition(".")[0])
    tree = ast.parse(Path(module.origin).read_text(encoding="utf-8"))
    return {
        node.value.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.AnnAssign)
        and isinstance(node.target, ast.Name)
        and node.target.id == "_cudagraph_support"
        and isinstance(node.value, ast.Attribute)
    }


def refused(by: str, error: str) -> dict[str, object]:
    return {"refused_by": by, "error": error, "config": None}


def main() -> None:
    as_on_a_gpu()
    vllm = Vllm()
    print(json.dumps([ask(vllm, args) for args in json.load(sys.stdin)], default=str))


if __name__ == "__main__":
    main()
