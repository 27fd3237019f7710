"""Which drafts and targets vLLM knows, where a name alone decides.

Read from the releases that `fathom.engine.capability_table.ARCHITECTURES` names; of any other
nothing is said. The names are those of vllm/model_executor/models/registry.py.
"""

from typing import Final

from fathom.core.models.config import ModelConfig

_EAGLE3_DRAFTS: Final = frozenset(
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
    {"gpt_oss", "llama", "mistral", "mixtral", "qwen2", "qwen3", "qwen3_moe"}
)
"""Values of `model_type` that vLLM turns into no multi-token prediction draft
(`hf_config_override` in vllm/config/speculative.py). Not all there are."""
TYPES_WITH_MTP: Final = frozenset({"deepseek_v3", "deepseek_v32", "glm_moe_dsa"})
"""Values of `model_type` whose `num_nextn_predict_layers` vLLM takes for the number of such
layers, and divides the depth by. Not all there are."""


def knows_eagle3_draft(config: ModelConfig) -> bool:
    """Whether vLLM has a class for this EAGLE 3 draft; True also where that cannot be told.

    vLLM prefixes the architecture's name with `Eagle3` where it is not there yet
    (vllm/transformers_utils/configs/eagle.py), and reads drafts in the speculators format by
    another path.
    """
    if not config.architectures or config.speculators_type or config.remote_code:
        return True
    return any(eagle3_name(name) in _EAGLE3_DRAFTS for name in config.architectures)


def eagle3_name(architecture: str) -> str:
    """The name under which vLLM looks for an EAGLE 3 draft."""
    named = architecture.startswith("Eagle3") or architecture.endswith("Eagle3")
    return architecture if named else f"Eagle3{architecture}"
