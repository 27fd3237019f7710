"""Does a model fit the accelerators, as far as sizes of files tell?

An estimate, in bytes per GPU. What vLLM adds at run time (activations, CUDA graphs, NCCL) is not
in it, so it tells what cannot fit, never that something will.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from fathom.api.accelerators import preset_for
from fathom.api.spec import Accelerator, NodePoolSpec
from fathom.core.model_config import ModelConfig

GIB: Final = 1 << 30
_MIB: Final = 1 << 20
_GB: Final = 10**9

_NOMINAL_BYTES: Final[Mapping[Accelerator, int]] = MappingProxyType(
    {
        # HBM3e as built in; what a node reports is less. Source: NVIDIA's product pages.
        Accelerator.B200: 192 * _GB,
        Accelerator.GB300: 288 * _GB,
    }
)
"""For accelerators whose label `nvidia.com/gpu.memory` is not known."""
_SURELY_LOADED: Final = 0.9
"""Share of a checkpoint that is loaded whatever the flags: multi-token prediction layers and
vision towers may stay out."""


@dataclass(frozen=True, slots=True)
class MemoryEstimate:
    """Bytes per GPU. None: unknown."""

    target_bytes: int | None
    """Weights of the target, spread evenly over the GPUs of a replica."""
    draft_bytes: int | None
    """Weights of the draft; 0: it has none of its own."""
    lookahead_bytes: int | None
    """KV cache that drafts may occupy when every request of the largest batch drafts `maxTokens`;
    out of vLLM's own KV cache, not beside it."""
    memory_bytes: int | None
    """Of one GPU."""

    @property
    def weights_bytes(self) -> int | None:
        """Weights of both; None: one of them is unknown."""
        if self.target_bytes is None or self.draft_bytes is None:
            return None
        return self.target_bytes + self.draft_bytes

    @property
    def cannot_fit(self) -> bool:
        """Whether the target's weights alone surely exceed the memory."""
        if self.target_bytes is None or self.memory_bytes is None:
            return False
        return self.target_bytes * _SURELY_LOADED > self.memory_bytes

    def leaves_no_cache(self, utilization: float) -> bool:
        """Whether the weights alone fill the share of the memory that vLLM may use.

        Args:
            utilization: that share, vLLM's --gpu-memory-utilization.
        """
        if self.weights_bytes is None or self.memory_bytes is None:
            return False
        return self.weights_bytes > self.memory_bytes * utilization


def accelerator_bytes(pool: NodePoolSpec) -> int | None:
    """Memory of one GPU; None: unknown, as for Custom."""
    labelled = preset_for(pool).memory_mebibytes * _MIB
    return labelled or _NOMINAL_BYTES.get(pool.accelerator)


def kv_bytes_per_token(config: ModelConfig, tensor_parallel_size: int, value_bytes: int) -> int:
    """Bytes that one token takes in one GPU's KV cache; 0: the config does not tell.

    MLA caches one latent and one rotary key per layer on every GPU; others a key and a value for
    each of a GPU's KV heads, of which it has one at least.

    Args:
        config: of the model.
        tensor_parallel_size: GPUs that share its heads.
        value_bytes: of one number in the cache: 2, or 1 with an FP8 cache.
    """
    layers = config.layers or 0
    if config.mla:
        return layers * ((config.kv_lora_rank or 0) + (config.qk_rope_head_dim or 0)) * value_bytes
    heads, hidden = config.attention_heads, config.hidden_size
    width = config.head_dim or (hidden // heads if hidden and heads else 0)
    kv_heads = config.kv_heads or heads or 0
    if not (layers and width and kv_heads):
        return 0
    return 2 * layers * max(1, kv_heads // tensor_parallel_size) * width * value_bytes
