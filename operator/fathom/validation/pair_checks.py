"""Whether draft and target are made for each other, and for this engine: some of the checks.

Read from the releases that `fathom.engine.capability_table.ARCHITECTURES` names; of any other
nothing is said. The names are those of vllm/model_executor/models/registry.py.
"""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from fathom.api.conditions import Reason
from fathom.api.methods import Method
from fathom.api.problem import Problem
from fathom.engine.capability_table import (
    ARCHITECTURES,
    EAGLE31,
    EAGLE31_OF_SPECULATORS,
    EAGLE31_ON_MLA,
)
from fathom.model_facts import EAGLE3_SPECULATORS, ModelConfig
from fathom.text import counted
from fathom.validation.model_input import PreflightInput, doubtful, refused, unknown, was_read

EAGLE3_DRAFTS: Final = frozenset(
    {
        "Eagle3DeepseekV2ForCausalLM",
        "Eagle3DeepseekV3ForCausalLM",
        "Eagle3LlamaForCausalLM",
        "Eagle3MiniMaxM2ForCausalLM",
        "Eagle3Qwen2_5vlForCausalLM",
        "Eagle3Qwen3ForCausalLM",
        "Eagle3Qwen3vlForCausalLM",
        "LlamaForCausalLMEagle3",
    }
)

TARGETS_WITHOUT_EAGLE3: Final = frozenset(
    {
        "BailingMoeForCausalLM",
        "BailingMoeV2ForCausalLM",
        "BloomForCausalLM",
        "Cohere2ForCausalLM",
        "CohereForCausalLM",
        "DbrxForCausalLM",
        "Ernie4_5_MoeForCausalLM",
        "Exaone4ForCausalLM",
        "ExaoneForCausalLM",
        "FalconForCausalLM",
        "FalconH1ForCausalLM",
        "GPT2LMHeadModel",
        "Gemma2ForCausalLM",
        "Gemma3ForCausalLM",
        "GemmaForCausalLM",
        "Glm4ForCausalLM",
        "Glm4MoeForCausalLM",
        "Glm4MoeLiteForCausalLM",
        "GraniteMoeForCausalLM",
        "GraniteMoeHybridForCausalLM",
        "InternLM2ForCausalLM",
        "JambaForCausalLM",
        "KimiVLForConditionalGeneration",
        "LongcatFlashForCausalLM",
        "Mamba2ForCausalLM",
        "MambaForCausalLM",
        "MixtralForCausalLM",
        "NemotronForCausalLM",
        "OPTForCausalLM",
        "OlmoeForCausalLM",
        "PhiMoEForCausalLM",
        "Qwen2MoeForCausalLM",
        "SolarForCausalLM",
        "StableLmForCausalLM",
        "Zamba2ForCausalLM",
    }
)
"""Targets whose class in vLLM does not implement `SupportsEagle3`
(vllm/model_executor/models/interfaces.py), found by asking each class. Not all there are."""

TYPES_WITHOUT_MTP: Final = frozenset(
    {
        *("gpt_oss", "llama", "mistral", "mixtral", "qwen2", "qwen3", "qwen3_moe"),
        *("cohere2", "falcon_h1", "gemma2", "gemma3", "gemma3_text", "glm4", "granite"),
        *("granitemoehybrid", "jamba", "llama4", "olmo2", "phi3", "qwen2_5_vl", "qwen2_moe"),
        *("qwen3_vl", "seed_oss", "smollm3", "starcoder2"),
    }
)
"""Values of `model_type` that vLLM turns into no multi-token prediction draft
(`hf_config_override` in vllm/config/speculative.py). Not all there are."""
TYPES_WITH_MTP: Final = frozenset(
    {
        "deepseek_v3",
        "deepseek_v32",
        "ernie4_5_moe",
        "exaone_moe",
        "glm4_moe",
        "glm_moe_dsa",
        "nemotron_h",
        "qwen3_5",
        "qwen3_5_moe",
        "qwen3_5_moe_text",
        "qwen3_5_text",
        "qwen3_next",
    }
)
"""Values of `model_type` of which vLLM takes the number of multi-token prediction layers from
`num_nextn_predict_layers` or `mtp_num_hidden_layers`, and divides the depth by it. Not all there
are."""
_MODELOPT: Final = "modelopt"
_QUANTIZED: Final[Mapping[str, str]] = MappingProxyType(
    {
        **dict.fromkeys(("awq", "awq_marlin", "auto_awq"), "awq"),
        **dict.fromkeys(("gptq", "gptq_marlin", "auto_gptq"), "gptq"),
        **dict.fromkeys(
            ("modelopt", "modelopt_fp4", "modelopt_mxfp8", "modelopt_mixed"), _MODELOPT
        ),
        **{each: each for each in ("fp8", "compressed-tensors")},
    }
)
"""Methods of which vLLM takes one for another of the same kind, and for no others."""
_HAS_ITS_OWN: Final = re.compile("deepseek_v4|gpt_oss")
"""Beginnings of `model_type` for which vLLM has methods of quantisation by themselves."""
_RENAMING: Final = ("eagle-", "eagle3", "dflash", "dspark")
"""In a draft's name: vLLM then takes that for its method, whatever was asked for, unless one of
these methods was (vllm/config/speculative.py, `__post_init__`)."""


def has_eagle3_class(config: ModelConfig) -> bool:
    """Whether it is certain which class of vLLM loads this EAGLE 3 draft."""
    if config.speculators_type:
        return config.speculators_type in EAGLE3_SPECULATORS
    return not config.runs_code and eagle3_name(config.architecture) in EAGLE3_DRAFTS


def knows_eagle3_draft(config: ModelConfig) -> bool:
    """Whether vLLM has a class for this EAGLE 3 draft; True also where that cannot be told.

    vLLM prefixes the architecture's name with `Eagle3` where it is not there yet
    (vllm/transformers_utils/configs/eagle.py), and reads drafts in the speculators format by
    another path.
    """
    if not config.architectures or config.speculators_type or config.remote_code:
        return True
    return any(eagle3_name(name) in EAGLE3_DRAFTS for name in config.architectures)


def eagle3_name(architecture: str) -> str:
    """The name under which vLLM looks for an EAGLE 3 draft."""
    named = architecture.startswith("Eagle3") or architecture.endswith("Eagle3")
    return architecture if named else f"Eagle3{architecture}"


def engine_age(given: PreflightInput) -> Problem | None:
    """What makes an EAGLE 3.1 draft is read since 0.22, and in two cases since later.

    0.22 builds `fc_norm` for MLA drafts and never applies it (deepseek_eagle3.py). Before 0.25
    neither key is taken over from the speculators format (`update_eagle3` in
    vllm/transformers_utils/configs/speculators/algos.py).
    """
    draft, target, version = given.draft_config, given.target_config, given.version
    if given.spec.draft.method is not Method.EAGLE3 or draft is None or version is None:
        return None
    keys = [key for key in ("fc_norm", "norm_output") if getattr(draft, key)]
    mla = draft.mla or (target is not None and target.mla)
    if draft.speculators_type:
        since, what = EAGLE31_OF_SPECULATORS, "in the speculators format"
        wrong = f"runs without its {' and '.join(keys)}, or not at all"
    elif mla and draft.fc_norm:
        since, what = EAGLE31_ON_MLA, "with MLA"
        wrong = "loads without applying its fc_norm"
    else:
        since, what = EAGLE31, f"with {' and '.join(keys)}"
        wrong = "does not know"
    if not keys or since.in_version(version):
        return None
    lowest = str(since.versions).removeprefix(">=")
    return refused(
        f"{given.spec.draft.id} is an EAGLE 3.1 draft {what} ({given.draft.source}), which "
        f"vLLM {version} {wrong}: use vLLM {lowest} or later.",
        reason=Reason.ENGINE_TOO_OLD,
    )


def draft_architecture(given: PreflightInput) -> Problem | None:
    """vllm/transformers_utils/configs/eagle.py and model_executor/models/registry.py."""
    draft, version = given.draft_config, given.version
    if given.spec.draft.method is not Method.EAGLE3 or draft is None or version is None:
        return None
    if not ARCHITECTURES.in_version(version) or knows_eagle3_draft(draft):
        return None
    return refused(
        f"{given.spec.draft.id} is a {draft.architecture}, and vLLM {version} knows no EAGLE 3 "
        f"draft {eagle3_name(draft.architecture)}: use a draft that was trained as EAGLE 3, or set "
        "spec.draft.method to what this one is."
    )


def target_architecture(given: PreflightInput) -> Problem | None:
    """`SupportsEagle3`, asked for in vllm/v1/worker/gpu_model_runner.py and eagle3_utils.py."""
    target, version = given.target_config, given.version
    if given.spec.draft.method is not Method.EAGLE3 or target is None or version is None:
        return None
    named = target.architecture
    if not ARCHITECTURES.in_version(version) or named not in TARGETS_WITHOUT_EAGLE3:
        return None
    return refused(
        f"{given.spec.model.id} is a {named}, and vLLM {version} gives no hidden states of such "
        "models to an EAGLE 3 draft: choose another spec.draft.method, such as draft_model or "
        "ngram.",
        "spec.draft.method",
    )


def draft_vocabulary(given: PreflightInput) -> Problem | None:
    """`compute_logits` in llama_eagle3.py and deepseek_eagle3.py places each draft token."""
    draft = given.draft_config
    if given.spec.draft.method is not Method.EAGLE3 or draft is None:
        return None
    reduced, full = draft.draft_vocab_size, draft.vocab_size
    if reduced is None or full is None or reduced <= full:
        return None
    return refused(
        f"{given.spec.draft.id} has draft_vocab_size {reduced} and vocab_size {full}: no table can "
        "map more draft tokens than there are tokens. Its config.json is wrong: use another draft "
        "or revision."
    )


def vocabularies(given: PreflightInput) -> Problem | None:
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
        return refused(
            f"{sizes}: vLLM takes a draft_model of the same vocabulary only. Use a draft of the "
            "target's own family."
        )
    if method is not Method.EAGLE3:
        return None
    if draft.draft_vocab_size == ours:
        return refused(
            f"{sizes}, though the draft's draft_vocab_size is {ours}: vLLM stops at the first "
            "draft. Use a draft that was trained for this target."
        )
    return doubtful(
        f"{sizes}: unless one of them is only padded, the draft is not this target's. Watch ACCEPT."
    )


def multi_token_prediction(given: PreflightInput) -> Problem | None:
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
        return refused(
            f"{named} has no multi-token prediction layers: choose another spec.draft.method, such "
            "as eagle3 with a draft of its own.",
            "spec.draft.method",
        )
    layers = config.nextn_predict_layers
    if config.model_type not in TYPES_WITH_MTP or layers is None:
        return unknown(
            f"the config.json of {named} does not say how many multi-token prediction layers it "
            "has, or not in a way that is known here: vLLM says at start whether it has any.",
            "spec.draft.method",
        )
    if given.depth <= layers or given.depth % layers == 0:
        return None
    field = "tokens" if given.depth == spec.speculation.tokens else "maxTokens"
    return refused(
        f"{named} predicts {layers} tokens at a time, and vLLM takes a depth of {given.depth} only "
        f"if that divides it: set {field} to a multiple of {layers}.",
        f"spec.speculation.{field}",
    )


def quantization(given: PreflightInput) -> Problem | None:
    """`_verify_quantization` in vllm/config/model.py: --quantization and what the checkpoint has.

    Checkpoints of ModelOpt take all of them, and some methods take other checkpoints.
    """
    target, stated = given.target_config, given.stated.quantization
    if target is None or given.version is None or not was_read(given.version):
        return None
    if _HAS_ITS_OWN.match(target.model_type):
        return None
    has, asked = (_QUANTIZED.get(each) for each in (target.quantization, stated))
    if has is None or asked is None or has in {asked, _MODELOPT}:
        return None
    return refused(
        f"{given.spec.model.id} is quantised by {target.quantization} (its config.json), and vLLM "
        f"stops at --quantization {stated}: leave it out, and vLLM takes the checkpoint's.",
        "spec.engine.args",
    )


def decode_context(given: PreflightInput) -> Problem | None:
    """`verify_with_parallel_config` in vllm/config/model.py: a KV head's GPUs share its context."""
    target, parts = given.target_config, given.stated.decode_context_parts
    if target is None or given.version is None or not was_read(given.version):
        return None
    heads, kv_heads = target.attention_heads, target.kv_heads
    size = given.spec.engine.tensor_parallel_size
    if not heads or not kv_heads or target.mla or parts <= 1:
        return None
    most = size // kv_heads if size > kv_heads else 1
    if parts <= most and (heads // kv_heads) % parts == 0:
        return None
    return refused(
        f"--decode-context-parallel-size {parts} needs {counted(parts, 'GPU')} for each of the "
        f"{kv_heads} KV heads of {given.spec.model.id}, in even shares of its {heads} attention "
        f"heads, and tensorParallelSize is {size}: vLLM stops at start. Remove it, or choose other "
        "sizes.",
        "spec.engine.args",
    )


def draft_name(given: PreflightInput) -> Problem | None:
    """vllm/config/speculative.py, `__post_init__`: some names decide the method."""
    if not (given.has_draft and _renamed(given)):
        return None
    return doubtful(
        f"vLLM takes the method of {given.spec.draft.id} from its name, not from "
        f"spec.draft.method ({given.spec.draft.method}): set that to what the draft is."
    )


def _renamed(given: PreflightInput) -> bool:
    """Whether vLLM takes the method from the draft's name instead of from the spec."""
    if given.spec.draft.method not in {Method.MTP, Method.DRAFT_MODEL}:
        return False
    named = (given.spec.draft.id or given.spec.model.id).lower()
    return any(part in named for part in _RENAMING)
