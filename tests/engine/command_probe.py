"""Asks a real vLLM what it makes of command lines, as far as a machine without a GPU can tell.

Run by the Python of an engine's environment, never by that of the tests. Reads a JSON list of
argument lists, writes one JSON list of answers on the last line. Each list goes through the parser
of `vllm serve` and through the whole configuration, up to where a model would be loaded. The
platform's own adjustments are left out and Triton is taken for granted: what is asked is what vLLM
says on a GPU, and on a CPU it would turn CUDA graphs and Model Runner V2 off before it looks.
"""

import ast
import contextlib
import importlib
import importlib.util
import inspect
import io
import json
import sys
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path

import vllm.config.vllm as vllm_config
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.platforms import current_platform
from vllm.utils.argparse_utils import FlexibleArgumentParser
from vllm.v1.attention.backends.registry import AttentionBackendEnum

from local_cluster.engine.names_probe import parser_module


def as_on_a_gpu() -> None:
    """Let vLLM's configuration decide as it does where CUDA graphs and Triton are."""
    if not isinstance(vllm_config.HAS_TRITON, bool):
        raise TypeError("this vLLM decides about Triton elsewhere")
    vllm_config.HAS_TRITON = True
    platform = type(current_platform)
    for method in ("check_and_update_config", "support_static_graph_mode"):
        if not hasattr(platform, method):
            raise AttributeError(f"this vLLM's platform has no {method}")
    platform.check_and_update_config = classmethod(lambda _cls, _config: None)
    platform.support_static_graph_mode = classmethod(lambda _cls: True)


def ask(
    parser: FlexibleArgumentParser, validate: Callable[[Namespace], None], args: list[str]
) -> dict[str, object]:
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            parsed = parser.parse_args(args)
            validate(parsed)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever vLLM says is the answer
        return refused("parser", f"{said.getvalue()[-1000:]}{error}")
    try:
        config = configuration(parsed)
    except Exception as error:  # noqa: BLE001 - see above
        return refused("configuration", str(error))
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


def configuration(parsed: Namespace) -> vllm_config.VllmConfig:
    parsed.model = parsed.model_tag
    return AsyncEngineArgs.from_cli_args(parsed).create_engine_config()


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
    module = parser_module()
    parser = module.make_arg_parser(FlexibleArgumentParser())
    validate = module.validate_parsed_serve_args
    print(json.dumps([ask(parser, validate, args) for args in json.load(sys.stdin)], default=str))


if __name__ == "__main__":
    main()
