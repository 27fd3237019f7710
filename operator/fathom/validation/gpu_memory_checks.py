"""Whether both models can be split over the GPUs, and fit into them: some of the checks.

An estimate, in bytes per GPU. Of what vLLM adds at run time only CUDA graphs are in it, by what
others saw of theirs; activations and NCCL are not. So it tells what cannot fit, never that
something will.
"""

from dataclasses import dataclass
from typing import Final

from fathom.api.accelerators import preset_for
from fathom.api.methods import Method
from fathom.api.problem import Problem
from fathom.api.spec import NodePoolSpec
from fathom.engine.cuda_graphs import Captured
from fathom.model_facts import ModelConfig
from fathom.validation.model_input import PreflightInput, doubtful, refused

GIB: Final = 1 << 30
MIB: Final = 1 << 20

_SURELY_LOADED: Final = 0.9
"""Share of a checkpoint that is loaded whatever the flags: multi-token prediction layers and
vision towers may stay out."""
_TARGET_GRAPH_BYTES: Final = 24 * MIB
"""Size of one graph of a target: vLLM issue 50780 has it of full ones, 22897 24 to 28 of piecewise
ones. A large model's were seen to take twice as much (50576), one of a billion parameters a quarter
(11349)."""
_DRAFT_GRAPH_BYTES: Final = MIB
"""Size of one graph of a draft, which has a layer or two: the least that vLLM's own estimate counts
(`_MIN_PER_GRAPH_BYTES` in vllm/v1/worker/gpu/cudagraph_utils.py, 0.32)."""
_TARGET_GRAPH_SECONDS: Final = (0.055, 0.43)
"""To capture one of a target: issues 22897 and 50576."""
_TENSOR_PARALLEL: Final = "spec.engine.tensorParallelSize"


@dataclass(frozen=True, slots=True)
class GraphCost:
    """About what an engine's CUDA graphs cost. Estimated by what others saw of other models."""

    memory_bytes: int
    """Memory of each GPU."""
    least_seconds: float
    most_seconds: float
    """Seconds of the engine's start."""

    @property
    def minutes(self) -> tuple[int, int]:
        """The least and the most, in whole minutes: one at least."""
        return max(1, round(self.least_seconds / 60)), max(1, round(self.most_seconds / 60))


def graph_cost(captured: Captured) -> GraphCost:
    """As many times what one graph costs: so vLLM itself reserves memory for them at its start."""
    least_seconds, most_seconds = (captured.target * each for each in _TARGET_GRAPH_SECONDS)
    draft = captured.total - captured.target
    memory_bytes = captured.target * _TARGET_GRAPH_BYTES + draft * _DRAFT_GRAPH_BYTES
    return GraphCost(memory_bytes, least_seconds, most_seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
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
    """Memory of one GPU."""

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
    layers = config.attention_layers
    if config.mla:
        return layers * ((config.kv_lora_rank or 0) + (config.qk_rope_head_dim or 0)) * value_bytes
    heads, hidden = config.attention_heads, config.hidden_size
    width = config.head_dim or (hidden // heads if hidden and heads else 0)
    kv_heads = config.kv_heads or heads or 0
    if not (layers and width and kv_heads):
        return 0
    return 2 * layers * max(1, kv_heads // tensor_parallel_size) * width * value_bytes


def target_heads(given: PreflightInput) -> Problem | None:
    """`verify_with_parallel_config` in vllm/config/model.py."""
    target, size = given.target_config, given.spec.engine.tensor_parallel_size
    if target is None or not target.attention_heads or target.attention_heads % size == 0:
        return None
    return refused(
        f"{given.spec.model.id} has {target.attention_heads} attention heads, which {size} GPUs "
        "cannot share evenly: set tensorParallelSize to a divisor of the number of heads.",
        _TENSOR_PARALLEL,
    )


def draft_heads(given: PreflightInput) -> Problem | None:
    """EAGLE drafts are built over the target's GPUs, whatever their own tensor-parallel size.

    `LlamaAttention` in llama.py, `QKVParallelLinear` in linear.py and `DeepseekV2MLAAttention` in
    deepseek_v2.py. A `draft_model` has the target's size anyway.
    """
    draft, size = given.draft_config, given.spec.engine.tensor_parallel_size
    method = given.spec.draft.method
    judged = method.row.reads_hidden_states or method is Method.DRAFT_MODEL
    if not judged or draft is None or not draft.attention_heads:
        return None
    if draft.attention_heads % size:
        return refused(
            f"{given.spec.draft.id} has {draft.attention_heads} attention heads, which the "
            f"target's {size} GPUs cannot share evenly: use another draft, or a tensorParallelSize "
            "that divides both models' heads."
        )
    if draft.mla or not draft.kv_heads or _divide(draft.kv_heads, size):
        return None
    if given.spec.draft.method is Method.DRAFT_MODEL:
        # Any architecture may be one, and not all of them share KV heads like Llama.
        return None
    return refused(
        f"{given.spec.draft.id} has {draft.kv_heads} KV heads, which the target's {size} GPUs can "
        "neither share nor repeat evenly: use another draft, or another tensorParallelSize."
    )


def maximum_length(given: PreflightInput) -> Problem | None:
    """`_get_and_verify_max_len` in vllm/config/model.py."""
    target, asked = given.target_config, given.stated.max_model_len
    if target is None or asked is None or given.stated.longer_allowed or target.rope_scaled:
        return None
    longest = target.max_position_embeddings
    if not longest or asked <= max(longest, target.model_max_length or 0):
        return None
    return refused(
        f"--max-model-len {asked} is more than the {longest} positions of {given.spec.model.id}: "
        "lower it.",
        "spec.engine.args",
    )


def kv_cache(given: PreflightInput) -> Problem | None:
    """tokenspeed_mla reads FP8 only (vllm/v1/attention/backends/mla/tokenspeed_mla.py).

    In doubt only: older ModelOpt declares it in hf_quant_config.json, which is not read here.
    """
    target, backend = given.target_config, given.spec.engine.attention_backend
    if target is None or backend.lower() != "tokenspeed_mla":
        return None
    if given.stated.kv_cache_dtype != "auto" or target.fp8_kv_cache:
        return None
    return doubtful(
        f"{backend} needs an FP8 KV cache, and the config.json of {given.spec.model.id} declares "
        "none: unless its hf_quant_config.json does, vLLM stops at start. Add --kv-cache-dtype=fp8 "
        "to spec.engine.args.",
        "spec.engine.args",
    )


def memory(given: PreflightInput) -> Problem | None:
    """By sizes of files: what is certain not to fit, and what leaves no space for requests."""
    if given.stated.rewrites_weights:
        return None
    estimate = memory_estimate(given)
    spec, stated = given.spec, given.stated
    if estimate.cannot_fit:
        return refused(
            f"the weights of {spec.model.id} take {_gib(estimate.target_bytes)} GiB on "
            f"{_each_gpu(given)}, and one {spec.node_pool.accelerator} has "
            f"{_gib(estimate.memory_bytes)}: raise tensorParallelSize, or use a quantised model.",
            _TENSOR_PARALLEL,
        )
    if estimate.leaves_no_cache(stated.gpu_memory_utilization):
        usable = _gib(int((estimate.memory_bytes or 0) * stated.gpu_memory_utilization))
        graphs, cure = "", "or use a quantised model"
        if estimate.graphs_bytes:
            graphs = f", CUDA graphs {_gib(estimate.graphs_bytes)}"
            cure = "use a quantised model, or lower --max-num-seqs, which saves graphs"
        return doubtful(
            f"the weights take about {_gib(estimate.weights_bytes)} GiB on each GPU{graphs}, and "
            f"vLLM may use {usable} GiB of one {spec.node_pool.accelerator}, so none may be left "
            f"for the KV cache: raise tensorParallelSize, {cure}.",
            _TENSOR_PARALLEL,
        )
    return None


def memory_estimate(given: PreflightInput) -> MemoryEstimate:
    """Bytes per GPU: weights, and the KV cache that drafts may occupy."""
    spec, gpus = given.spec, _gpus(given)
    size = spec.engine.tensor_parallel_size
    target_bytes = given.target.weights.total_bytes
    draft_bytes = given.draft.weights.total_bytes if given.has_draft else 0
    configs = [config for config in (given.target_config, given.draft_config) if config]
    value_bytes = given.stated.kv_value_bytes
    per_token = [kv_bytes_per_token(config, size, value_bytes) for config in configs]
    complete = given.target_config is not None and all(per_token)
    slots = given.stated.max_batch * given.depth
    return MemoryEstimate(
        target_bytes=None if target_bytes is None else target_bytes // gpus,
        # The draft stands on the GPUs of the last pipeline stage.
        draft_bytes=None if draft_bytes is None else draft_bytes // size,
        lookahead_bytes=sum(per_token) * slots if complete else None,
        graphs_bytes=None if given.captured is None else graph_cost(given.captured).memory_bytes,
        memory_bytes=accelerator_bytes(spec.node_pool),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class StateCost:
    """What the states of a hybrid target take at one deepest depth."""

    states: int
    """States that each running request keeps, without those that cache its prefix."""
    cached: int = 0
    """States that cache its prefix."""
    request_bytes: int | None
    """Bytes that all of them take on each GPU; None: unknown."""
    requests: int | None
    """Requests whose states fit at once, at most; None: unknown."""
    blocks: int | None
    """Blocks of vLLM's cache, each of which has space for a state; None: unknown."""

    def compared(self, other: "StateCost | None") -> str:
        """What it takes, and what another takes, such as `8 states a request`."""
        text = f"space for depth {self.states - 1} takes {self.states} states a request"
        if other is None:
            return text
        text += f", for depth {other.states - 1} only {other.states}"
        if self.request_bytes and other.request_bytes:
            cached = "with one for prefix caching, " if self.cached else ""
            mine, theirs = self.request_bytes / MIB, other.request_bytes / MIB
            text += f" ({cached}{mine:,.0f} MiB of each GPU, for {theirs:,.0f})"
        if self.requests is None or other.requests is None:
            return text
        return f"{text}: {self.requests} of them fit at once, for {other.requests}"


def state_cost(given: PreflightInput) -> StateCost | None:
    """What space for the deepest depth costs; None: the target keeps no states, or none for drafts.

    `MambaSpec.max_memory_usage_bytes` in vllm/v1/kv_cache_interface.py, and
    `get_kv_cache_groups` in v1/core/kv_cache_utils.py: a block holds a state of as many layers as
    the smaller of the groups has.
    """
    target, stated, engine = given.target_config, given.stated, given.spec.engine
    layers = target.hybrid if target is not None else None
    if not given.keeps_states:
        return None
    states = 1 + given.depth
    if layers is None or layers.shape is None or not layers.states:
        return StateCost(states=states, request_bytes=None, requests=None, blocks=None)
    page = layers.shape.content_bytes(
        gpus=engine.tensor_parallel_size,
        depth=given.depth,
        type_bytes=stated.state_bytes or layers.shape.type_bytes or stated.other_state_bytes,
        other_bytes=stated.other_state_bytes,
    )
    of_stage = layers.states // engine.pipeline_parallel_size or 1
    cached = stated.prefix_states
    each = page * of_stage * (states + cached)
    in_block = page * min(of_stage, layers.attention or of_stage)
    left = _left_for_cache(given)
    return StateCost(
        states=states,
        cached=cached,
        request_bytes=each,
        requests=None if left is None else left // each,
        blocks=None if left is None else left // in_block,
    )


def _left_for_cache(given: PreflightInput) -> int | None:
    """At most: neither activations nor graphs whose number is not known are counted."""
    estimate, stated = memory_estimate(given), given.stated
    if estimate.weights_bytes is None or estimate.memory_bytes is None or stated.rewrites_weights:
        return None
    usable = int(estimate.memory_bytes * stated.gpu_memory_utilization)
    return max(0, usable - estimate.weights_bytes - (estimate.graphs_bytes or 0))


def _divide(heads: int, gpus: int) -> bool:
    """Whether KV heads can be shared by the GPUs, or repeated over them."""
    return heads % gpus == 0 if heads >= gpus else gpus % heads == 0


def _gpus(given: PreflightInput) -> int:
    engine = given.spec.engine
    return engine.tensor_parallel_size * engine.pipeline_parallel_size


def _each_gpu(given: PreflightInput) -> str:
    gpus = _gpus(given)
    return "one GPU" if gpus == 1 else f"each of {gpus} GPUs"


def _gib(size_bytes: int | None) -> str:
    return f"{(size_bytes or 0) / GIB:.0f}"
