"""What `spec.engine.args` say that the operator must know, in whatever spelling vLLM takes."""

from collections.abc import Sequence
from contextlib import suppress
from enum import Enum
from typing import Final

from fathom.api.accelerators import preset_for
from fathom.api.choices import Accelerator
from fathom.api.spec import SpeculativeDeploymentSpec
from fathom.engine.options import last_value, options, whole_number

_MAX_NUM_SEQS: Final = 1024
_MAX_NUM_SEQS_OF_SMALL_GPUS: Final = 256
_SMALL_BYTES: Final = 70 << 30
"""vLLM's own defaults, with so much memory and more, but for the A100, and below
(`get_batch_defaults` in vllm/engine/arg_utils.py, 0.32)."""


def max_batch(spec: SpeculativeDeploymentSpec) -> int:
    """The largest number of requests in one engine step, where depth is live.

    Where `engine.args` say nothing, what vLLM would choose by itself on these GPUs. Where their
    memory is not known, the lower default is taken.
    """
    stated = stated_max_num_seqs(spec)
    with suppress(ValueError):
        if stated is not None:
            return max(1, int(stated))
    pool = spec.node_pool
    small = pool.accelerator is Accelerator.A100 or preset_for(pool).memory_bytes < _SMALL_BYTES
    own = _MAX_NUM_SEQS_OF_SMALL_GPUS if small else _MAX_NUM_SEQS
    if stated_performance_mode(spec) == "throughput":
        own *= 2
    tokens = stated_tokens_per_step(spec)
    return min(own, tokens) if tokens is not None and tokens > 0 else own


_LOADED_AS_THE_HUB_HAS_THEM: Final = frozenset({"", "auto", "hf", "mistral"})
_LOADED_FROM_ALL_FILES: Final = frozenset(
    {"safetensors", "fastsafetensors", "instanttensor", "runai_streamer", "bitsandbytes"}
)
"""Values of --load-format with which vLLM reads a hub's files, and picks among them differently."""
_NAMING_OTHER_REPOSITORIES: Final = (
    "--tokenizer",
    "--hf-config-path",
    "--generation-config",
    "--lora-modules",
    "--enable-lora",
)


class Loading(Enum):
    """Which files of a repository's weights the engine reads, and where it looks for them."""

    CHOSEN = "those that vLLM chooses by default, in the hub's cache"
    ALL = "one format's, whichever there are, in the hub's cache"
    ELSEWHERE = "none, or not in the hub's cache"


def loading(args: Sequence[str]) -> Loading:
    """How `engine.args` have the weights loaded."""
    if last_value(args, "--download-dir") is not None:
        return Loading.ELSEWHERE
    stated = last_value(args, "--load-format") or ""
    if stated in _LOADED_AS_THE_HUB_HAS_THEM:
        return Loading.CHOSEN
    return Loading.ALL if stated in _LOADED_FROM_ALL_FILES else Loading.ELSEWHERE


def names_other_repositories(args: Sequence[str]) -> bool:
    """Whether `engine.args` may make the engine look for more than target and draft."""
    return any(option.name in _NAMING_OTHER_REPOSITORIES for option in options(args))


def stated_max_num_seqs(spec: SpeculativeDeploymentSpec) -> str | None:
    """What `engine.args` says about the largest batch, in whatever spelling; None: nothing."""
    return last_value(spec.engine.args, "--max-num-seqs")


def stated_tokens_per_step(spec: SpeculativeDeploymentSpec) -> int | None:
    """What `engine.args` says about the most tokens of one step; None: nothing, or no number."""
    return whole_number(last_value(spec.engine.args, "--max-num-batched-tokens") or "")


def stated_performance_mode(spec: SpeculativeDeploymentSpec) -> str:
    """What `engine.args` prefers; `balanced`, vLLM's default, for nothing."""
    return last_value(spec.engine.args, "--performance-mode") or "balanced"


def stated_kv_cache_dtype(spec: SpeculativeDeploymentSpec) -> str:
    """What `engine.args` says about the KV cache's type; `auto`, vLLM's default, for nothing."""
    return last_value(spec.engine.args, "--kv-cache-dtype") or "auto"
