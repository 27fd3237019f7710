"""The checks of a preflight, in the order in which a reader wants their sentences.

Each looks at one thing and returns what it found, or None: nothing stands against the pair, or it
cannot be told. Refused is only what is certain to fail in the releases that were read; each check
names the module of vLLM that it judges by.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from fathom.api.conditions import Reason
from fathom.api.spec import Method
from fathom.core.capability_table import ARCHITECTURES, EAGLE31_ON_MLA
from fathom.core.draft_architectures import (
    TARGETS_WITHOUT_EAGLE3,
    TYPES_WITH_MTP,
    TYPES_WITHOUT_MTP,
    eagle3_name,
    knows_eagle3_draft,
)
from fathom.core.memory_estimate import (
    GIB,
    MemoryEstimate,
    accelerator_bytes,
    graph_cost,
    kv_bytes_per_token,
)
from fathom.core.model_config import ModelConfig
from fathom.core.model_facts import Absence
from fathom.core.preflight_input import PreflightInput

_DRAFT: Final = "spec.draft.id"
_TENSOR_PARALLEL: Final = "spec.engine.tensorParallelSize"
_EAGLE: Final = frozenset({Method.EAGLE, Method.EAGLE3})
_RENAMING: Final = ("eagle-", "eagle3", "dflash", "dspark")
"""In a draft's name: vLLM then takes that for its method, whatever was asked for, unless one of
these methods was (vllm/config/speculative.py, `__post_init__`)."""


TABLE: Final = "Fathom's own table"
"""The source of what is known of a draft without its config.json."""


class Certainty(IntEnum):
    """How sure a finding is. The surest decides."""

    UNKNOWN = 1
    DOUBTFUL = 2
    REFUSED = 3


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that stands against a pair, or against knowing."""

    certainty: Certainty
    reason: Reason
    field: str
    """Path in the spec that the sentence is about."""
    sentence: str


def _refused(sentence: str, field: str = _DRAFT, reason: Reason = Reason.INCOMPATIBLE) -> Finding:
    return Finding(Certainty.REFUSED, reason, field, sentence)


def _doubtful(sentence: str, field: str = _DRAFT) -> Finding:
    return Finding(Certainty.DOUBTFUL, Reason.DOUBTFUL, field, sentence)


def _unknown(sentence: str, field: str = _DRAFT) -> Finding:
    return Finding(Certainty.UNKNOWN, Reason.NOT_CHECKED, field, sentence)


def engine_age(given: PreflightInput) -> Finding | None:
    """0.22 builds `fc_norm` for MLA drafts and never applies it (deepseek_eagle3.py)."""
    draft, target, version = given.draft_config, given.target_config, given.version
    if given.spec.draft.method is not Method.EAGLE3 or draft is None or version is None:
        return None
    mla = draft.mla or (target is not None and target.mla)
    if not (draft.fc_norm and draft.norm_output and mla) or EAGLE31_ON_MLA.in_version(version):
        return None
    lowest = str(EAGLE31_ON_MLA.versions).removeprefix(">=")
    return _refused(
        f"{given.spec.draft.id} is an EAGLE 3.1 draft with MLA ({given.draft.source}), which "
        f"vLLM {version} loads without applying its fc_norm: use vLLM {lowest} or later.",
        reason=Reason.ENGINE_TOO_OLD,
    )


def draft_architecture(given: PreflightInput) -> Finding | None:
    """vllm/transformers_utils/configs/eagle.py and model_executor/models/registry.py."""
    draft, version = given.draft_config, given.version
    if given.spec.draft.method is not Method.EAGLE3 or draft is None or version is None:
        return None
    if not ARCHITECTURES.in_version(version) or knows_eagle3_draft(draft):
        return None
    return _refused(
        f"{given.spec.draft.id} is a {draft.architecture}, and vLLM {version} knows no EAGLE 3 "
        f"draft {eagle3_name(draft.architecture)}: use a draft that was trained as EAGLE 3, or set "
        "spec.draft.method to what this one is."
    )


def target_architecture(given: PreflightInput) -> Finding | None:
    """`SupportsEagle3`, asked for in vllm/v1/worker/gpu_model_runner.py and eagle3_utils.py."""
    target, version = given.target_config, given.version
    if given.spec.draft.method is not Method.EAGLE3 or target is None or version is None:
        return None
    named = target.architecture
    if not ARCHITECTURES.in_version(version) or named not in TARGETS_WITHOUT_EAGLE3:
        return None
    return _refused(
        f"{given.spec.model.id} is a {named}, and vLLM {version} gives no hidden states of such "
        "models to an EAGLE 3 draft: choose another spec.draft.method, such as draft_model or "
        "ngram.",
        "spec.draft.method",
    )


def hidden_size(given: PreflightInput) -> Finding | None:
    """The draft's `fc` takes hidden states of one width (llama_eagle3.py, deepseek_eagle3.py).

    EAGLE drafts take them without `fc` and into a buffer as wide as the draft
    (vllm/v1/spec_decode/llm_base_proposer.py).
    """
    draft, target = given.draft_config, given.target_config
    if given.spec.draft.method not in _EAGLE or draft is None or target is None:
        return None
    through_fc = given.spec.draft.method is Method.EAGLE3 and draft.use_aux_hidden_state
    reads = (draft.target_hidden_size if through_fc else None) or draft.hidden_size
    if reads is None or target.hidden_size is None or target.hidden_streams:
        return None
    if reads == target.hidden_size:
        return None
    return _refused(
        f"{given.spec.draft.id} reads hidden states of size {reads}, and {given.spec.model.id} has "
        f"hidden_size {target.hidden_size}: use a draft that was trained for this target."
    )


def draft_vocabulary(given: PreflightInput) -> Finding | None:
    """`compute_logits` in llama_eagle3.py and deepseek_eagle3.py places each draft token."""
    draft = given.draft_config
    if given.spec.draft.method is not Method.EAGLE3 or draft is None:
        return None
    reduced, full = draft.draft_vocab_size, draft.vocab_size
    if reduced is None or full is None or reduced <= full:
        return None
    return _refused(
        f"{given.spec.draft.id} has draft_vocab_size {reduced} and vocab_size {full}: no table can "
        "map more draft tokens than there are tokens. Its config.json is wrong: use another draft "
        "or revision."
    )


def vocabularies(given: PreflightInput) -> Finding | None:
    """Judged by vLLM's verify_equal_vocab_size_if_draft_model, or for EAGLE 3 by compute_logits.

    vllm/config/speculative.py; llama_eagle3.py and deepseek_eagle3.py.
    """
    draft, target, method = given.draft_config, given.target_config, given.spec.draft.method
    ours = None if target is None else target.vocab_size
    if draft is None or ours is None or draft.vocab_size in {None, ours}:
        return None
    sizes = (
        f"{given.spec.draft.id} has vocab_size {draft.vocab_size}, and {given.spec.model.id} {ours}"
    )
    if method is Method.DRAFT_MODEL and not _renamed(given):
        return _refused(
            f"{sizes}: vLLM takes a draft_model of the same vocabulary only. Use a draft of the "
            "target's own family."
        )
    if method is not Method.EAGLE3:
        return None
    if draft.draft_vocab_size == ours:
        return _refused(
            f"{sizes}, though the draft's draft_vocab_size is {ours}: vLLM stops at the first "
            "draft. Use a draft that was trained for this target."
        )
    return _doubtful(
        f"{sizes}: unless one of them is only padded, the draft is not this target's. Watch ACCEPT."
    )


def draft_to_target_table(given: PreflightInput) -> Finding | None:
    """Without `d2t` vLLM takes draft token i for target token i, and says nothing.

    `load_weights` in llama_eagle3.py and deepseek_eagle3.py.
    """
    draft = given.draft_config
    if given.spec.draft.method is not Method.EAGLE3 or draft is None:
        return None
    full, reduced = draft.vocab_size, draft.draft_vocab_size
    if (
        full is None
        or reduced is None
        or reduced >= full
        or given.draft.weights.has_d2t is not False
    ):
        return None
    return _doubtful(
        f"{given.spec.draft.id} proposes {reduced} of {full} tokens, and its weights hold no d2t, "
        "which says which: vLLM takes the first ones, without an error. Watch ACCEPT, or use "
        "another draft."
    )


def target_heads(given: PreflightInput) -> Finding | None:
    """`verify_with_parallel_config` in vllm/config/model.py."""
    target, size = given.target_config, given.spec.engine.tensor_parallel_size
    if target is None or not target.attention_heads or target.attention_heads % size == 0:
        return None
    return _refused(
        f"{given.spec.model.id} has {target.attention_heads} attention heads, which {size} GPUs "
        "cannot share evenly: set tensorParallelSize to a divisor of the number of heads.",
        _TENSOR_PARALLEL,
    )


def draft_heads(given: PreflightInput) -> Finding | None:
    """EAGLE drafts are built over the target's GPUs, whatever their own tensor-parallel size.

    `LlamaAttention` in llama.py, `QKVParallelLinear` in linear.py and `DeepseekV2MLAAttention` in
    deepseek_v2.py. A `draft_model` has the target's size anyway.
    """
    draft, size = given.draft_config, given.spec.engine.tensor_parallel_size
    judged = _EAGLE | {Method.DRAFT_MODEL}
    if given.spec.draft.method not in judged or draft is None or not draft.attention_heads:
        return None
    if draft.attention_heads % size:
        return _refused(
            f"{given.spec.draft.id} has {draft.attention_heads} attention heads, which the "
            f"target's {size} GPUs cannot share evenly: use another draft, or a tensorParallelSize "
            "that divides both models' heads."
        )
    if draft.mla or not draft.kv_heads or _divide(draft.kv_heads, size):
        return None
    if given.spec.draft.method is Method.DRAFT_MODEL:
        # Any architecture may be one, and not all of them share KV heads like Llama.
        return None
    return _refused(
        f"{given.spec.draft.id} has {draft.kv_heads} KV heads, which the target's {size} GPUs can "
        "neither share nor repeat evenly: use another draft, or another tensorParallelSize."
    )


def multi_token_prediction(given: PreflightInput) -> Finding | None:
    """`hf_config_override` and `__post_init__` in vllm/config/speculative.py."""
    spec, version = given.spec, given.version
    config = given.draft_config if given.has_draft else given.target_config
    if spec.draft.method is not Method.MTP or config is None or version is None:
        return None
    if not ARCHITECTURES.in_version(version) or _renamed(given):
        return None
    named = spec.draft.id or spec.model.id
    if config.model_type in TYPES_WITHOUT_MTP or (
        config.model_type in TYPES_WITH_MTP and config.nextn_predict_layers == 0
    ):
        return _refused(
            f"{named} has no multi-token prediction layers: choose another spec.draft.method, such "
            "as eagle3 with a draft of its own.",
            "spec.draft.method",
        )
    layers = config.nextn_predict_layers
    if config.model_type not in TYPES_WITH_MTP or not layers:
        return None
    if given.depth <= layers or given.depth % layers == 0:
        return None
    field = "tokens" if given.depth == spec.speculation.tokens else "maxTokens"
    return _refused(
        f"{named} predicts {layers} tokens at a time, and vLLM takes a depth of {given.depth} only "
        f"if that divides it: set {field} to a multiple of {layers}.",
        f"spec.speculation.{field}",
    )


def maximum_length(given: PreflightInput) -> Finding | None:
    """`_get_and_verify_max_len` in vllm/config/model.py."""
    target, asked = given.target_config, given.stated.max_model_len
    if target is None or asked is None or given.stated.longer_allowed or target.rope_scaled:
        return None
    longest = target.max_position_embeddings
    if not longest or asked <= max(longest, target.model_max_length or 0):
        return None
    return _refused(
        f"--max-model-len {asked} is more than the {longest} positions of {given.spec.model.id}: "
        "lower it.",
        "spec.engine.args",
    )


def kv_cache(given: PreflightInput) -> Finding | None:
    """tokenspeed_mla reads FP8 only (vllm/v1/attention/backends/mla/tokenspeed_mla.py).

    In doubt only: older ModelOpt declares it in hf_quant_config.json, which is not read here.
    """
    target, backend = given.target_config, given.spec.engine.attention_backend
    if target is None or backend.lower() != "tokenspeed_mla":
        return None
    if given.stated.kv_cache_dtype != "auto" or target.fp8_kv_cache:
        return None
    return _doubtful(
        f"{backend} needs an FP8 KV cache, and the config.json of {given.spec.model.id} declares "
        "none: unless its hf_quant_config.json does, vLLM stops at start. Add --kv-cache-dtype=fp8 "
        "to spec.engine.args.",
        "spec.engine.args",
    )


def memory(given: PreflightInput) -> Finding | None:
    """By sizes of files: what is certain not to fit, and what leaves no room for requests."""
    if given.stated.rewrites_weights:
        return None
    estimate = memory_estimate(given)
    spec, stated = given.spec, given.stated
    if estimate.cannot_fit:
        return _refused(
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
        return _doubtful(
            f"the weights take about {_gib(estimate.weights_bytes)} GiB on each GPU{graphs}, and "
            f"vLLM may use {usable} GiB of one {spec.node_pool.accelerator}, so none may be left "
            f"for the KV cache: raise tensorParallelSize, {cure}.",
            _TENSOR_PARALLEL,
        )
    return None


def draft_name(given: PreflightInput) -> Finding | None:
    """vllm/config/speculative.py, `__post_init__`: some names decide the method."""
    if not (given.has_draft and _renamed(given)):
        return None
    return _doubtful(
        f"vLLM takes the method of {given.spec.draft.id} from its name, not from "
        f"spec.draft.method ({given.spec.draft.method}): set that to what the draft is."
    )


def at_hand(given: PreflightInput) -> Finding | None:
    """Whether both models could be looked at at all."""
    if given.spec.draft.method is Method.NGRAM or given.draft.source == TABLE:
        return None
    said = "vLLM says at start whether this draft fits"
    for facts, named in ((given.draft, given.spec.draft.id), (given.target, given.spec.model.id)):
        if facts.config is None and facts.absence is not Absence.NO_MODEL:
            why = f" ({facts.explanation})" if facts.explanation else ""
            return _unknown(f"the config.json of {named} is not at hand{why}: {said}.")
    if given.stated.rewrites_config:
        return _unknown(
            "spec.engine.args have vLLM read the target otherwise than its config.json says: "
            f"{said}.",
            "spec.engine.args",
        )
    return None


def engine_known(given: PreflightInput) -> Finding | None:
    if given.version is not None:
        return None
    return _unknown(
        f"which vLLM {given.spec.engine.image} holds is unknown: set spec.engine.version to have "
        f"{given.spec.draft.id or 'its speculation'} checked.",
        "spec.engine.version",
    )


CHECKS: Final[tuple[Callable[[PreflightInput], Finding | None], ...]] = (
    engine_age,
    draft_architecture,
    target_architecture,
    hidden_size,
    draft_vocabulary,
    vocabularies,
    draft_to_target_table,
    target_heads,
    draft_heads,
    multi_token_prediction,
    maximum_length,
    kv_cache,
    memory,
    draft_name,
    at_hand,
    engine_known,
)


CHECKS_OF_TARGET: Final = (target_heads, maximum_length, kv_cache, memory)
"""What can be judged where no draft is loaded."""


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


def _renamed(given: PreflightInput) -> bool:
    """Whether vLLM takes the method from the draft's name instead of from the spec."""
    if given.spec.draft.method not in {Method.MTP, Method.DRAFT_MODEL}:
        return False
    named = (given.spec.draft.id or given.spec.model.id).lower()
    return any(part in named for part in _RENAMING)


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


def shape(config: ModelConfig) -> str:
    """A model's shape in words, such as `LlamaForCausalLM, hidden 8192, vocabulary 128256`."""
    parts = [config.architecture or "unnamed architecture"]
    if config.hidden_size is not None:
        parts.append(f"hidden {config.hidden_size}")
    if config.vocab_size is not None:
        parts.append(f"vocabulary {config.vocab_size}")
    if config.draft_vocab_size not in {None, config.vocab_size}:
        parts.append(f"of which it drafts {config.draft_vocab_size}")
    return ", ".join(parts)
