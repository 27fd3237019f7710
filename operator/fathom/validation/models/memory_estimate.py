"""Does a model fit the accelerators, as far as sizes of files tell?

An estimate, in bytes per GPU. Of what vLLM adds at run time only CUDA graphs are in it, by what
others saw of theirs; activations and NCCL are not. So it tells what cannot fit, never that
something will.
"""

from dataclasses import dataclass
from typing import Final

from fathom.api.accelerators import preset_for
from fathom.api.spec import NodePoolSpec
from fathom.core.models.config import ModelConfig
from fathom.engine.cuda_graphs import Captured

GIB: Final = 1 << 30
_MIB: Final = 1 << 20

_SURELY_LOADED: Final = 0.9
"""Share of a checkpoint that is loaded whatever the flags: multi-token prediction layers and
vision towers may stay out."""
_TARGET_GRAPH_BYTES: Final = 24 * _MIB
"""Of one graph of a target: vLLM issue 50780 has it of full ones, 22897 24 to 28 of piecewise ones.
A large model's were seen to take twice as much (50576), one of a billion parameters a quarter
(11349)."""
_DRAFT_GRAPH_BYTES: Final = _MIB
"""Of one graph of a draft, which has a layer or two: the least that vLLM's own estimate counts
(`_MIN_PER_GRAPH_BYTES` in vllm/v1/worker/gpu/cudagraph_utils.py, 0.32)."""
_TARGET_GRAPH_SECONDS: Final = (0.055, 0.43)
"""To capture one of a target: issues 22897 and 50576."""


@dataclass(frozen=True, slots=True)
class GraphCost:
    """About what an engine's CUDA graphs cost. Estimated by what others saw of other models."""

    memory_bytes: int
    """Of each GPU."""
    least_seconds: float
    most_seconds: float
    """Of the engine's start."""


def graph_cost(captured: Captured) -> GraphCost:
    """As many times what one graph costs: so vLLM itself reserves memory for them at its start."""
    least_seconds, most_seconds = (captured.target * each for each in _TARGET_GRAPH_SECONDS)
    draft = captured.total - captured.target
    memory_bytes = captured.target * _TARGET_GRAPH_BYTES + draft * _DRAFT_GRAPH_BYTES
    return GraphCost(memory_bytes, least_seconds, most_seconds)


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
    graphs_bytes: int | None
    """CUDA graphs of both models, by what others saw of theirs (`graph_cost`)."""
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
        """Whether weights and CUDA graphs fill the share of the memory that vLLM may use.

        Args:
            utilization: that share, vLLM's --gpu-memory-utilization.
        """
        if self.weights_bytes is None or self.memory_bytes is None:
            return False
        taken = self.weights_bytes + (self.graphs_bytes or 0)
        return taken > self.memory_bytes * utilization


def accelerator_bytes(pool: NodePoolSpec) -> int | None:
    """Memory of one GPU; None: unknown, as for Custom."""
    return preset_for(pool).memory_bytes or None


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
