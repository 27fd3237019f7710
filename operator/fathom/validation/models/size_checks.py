"""Whether both models can be split over the GPUs, and fit into them: some of the checks."""

from typing import Final

from fathom.api.choices import Method
from fathom.api.problem import Problem
from fathom.validation.models.findings import doubtful, refused
from fathom.validation.models.input import EAGLE, PreflightInput
from fathom.validation.models.memory_estimate import (
    GIB,
    MemoryEstimate,
    accelerator_bytes,
    graph_cost,
    kv_bytes_per_token,
)

_TENSOR_PARALLEL: Final = "spec.engine.tensorParallelSize"


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
    judged = EAGLE | {Method.DRAFT_MODEL}
    if given.spec.draft.method not in judged or draft is None or not draft.attention_heads:
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
    """By sizes of files: what is certain not to fit, and what leaves no room for requests."""
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
