"""What `spec.engine.args` say that the operator must know, in whatever spelling vLLM takes."""

from contextlib import suppress
from enum import Enum
from typing import Final

from fathom.api.accelerators import preset_for
from fathom.api.choices import Accelerator
from fathom.api.spec import NodePoolSpec
from fathom.engine.arguments import EngineArguments, whole_number

MAX_NUM_SEQS: Final = "--max-num-seqs"
MAX_NUM_BATCHED_TOKENS: Final = "--max-num-batched-tokens"
_MAX_NUM_SEQS: Final = 1024
_MAX_NUM_SEQS_OF_SMALL_GPUS: Final = 256
_SMALL_BYTES: Final = 70 << 30
"""vLLM's own defaults, with so much memory and more, but for the A100, and below
(`get_batch_defaults` in vllm/engine/arg_utils.py, 0.32)."""


def max_num_seqs(arguments: EngineArguments, pool: NodePoolSpec) -> int:
    """The largest number of requests in one engine step, where depth is live.

    Where the arguments say nothing, what vLLM would choose by itself on these GPUs. Where their
    memory is not known, the lower default is taken.
    """
    stated = arguments.value(MAX_NUM_SEQS)
    with suppress(ValueError):
        if stated is not None:
            return max(1, int(stated))
    small = pool.accelerator is Accelerator.A100 or preset_for(pool).memory_bytes < _SMALL_BYTES
    own = _MAX_NUM_SEQS_OF_SMALL_GPUS if small else _MAX_NUM_SEQS
    if performance_mode(arguments) == "throughput":
        own *= 2
    tokens = token_budget(arguments)
    return min(own, tokens) if tokens is not None and tokens > 0 else own


def token_budget(arguments: EngineArguments) -> int | None:
    """The most tokens of one step; None: not stated, or no number."""
    return whole_number(arguments.value(MAX_NUM_BATCHED_TOKENS) or "")


def performance_mode(arguments: EngineArguments) -> str:
    """What is preferred; `balanced`, vLLM's default, for nothing."""
    return arguments.value("--performance-mode") or "balanced"


def kv_cache_dtype(arguments: EngineArguments) -> str:
    """The KV cache's type; `auto`, vLLM's default, for nothing."""
    return arguments.value("--kv-cache-dtype") or "auto"


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


def loading(arguments: EngineArguments) -> Loading:
    """How the weights are loaded."""
    if arguments.has("--download-dir"):
        return Loading.ELSEWHERE
    stated = arguments.value("--load-format") or ""
    if stated in _LOADED_AS_THE_HUB_HAS_THEM:
        return Loading.CHOSEN
    return Loading.ALL if stated in _LOADED_FROM_ALL_FILES else Loading.ELSEWHERE


def names_other_repositories(arguments: EngineArguments) -> bool:
    """Whether the engine may look for more than target and draft."""
    return any(option.name in _NAMING_OTHER_REPOSITORIES for option in arguments.options)
