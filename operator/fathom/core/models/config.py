"""A model's config.json, read once into what decides about a pair. What it does not say is None.

It is anybody's: what is kept of it is small, whatever stands there.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self

from pydantic import JsonValue

_Document = Mapping[str, JsonValue]

_FP8_BITS: Final = 8
_LONGEST_NAME: Final = 128
_MOST_ARCHITECTURES: Final = 8
_LARGEST_COUNT: Final = 1 << 53
"""What a float holds exactly. A larger one is no size of anything."""
_NESTED: Final = ("text_config", "transformer_layer_config")
"""Where the language model stands if not at the top: in a multimodal model, and in a draft in the
format of vLLM's speculators library (vllm/transformers_utils/configs/speculators)."""


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """One model's shape. Sizes are counts of numbers, not bytes."""

    architectures: tuple[str, ...] = ()
    model_type: str = ""
    hidden_size: int | None = None
    target_hidden_size: int | None = None
    """Of a draft: the width of the hidden states it was trained on, if not its own."""
    attention_heads: int | None = None
    kv_heads: int | None = None
    head_dim: int | None = None
    layers: int | None = None
    vocab_size: int | None = None
    draft_vocab_size: int | None = None
    """Of a draft: how many of those tokens it can propose."""
    max_position_embeddings: int | None = None
    model_max_length: int | None = None
    rope_scaled: bool = False
    """Whether positions are stretched, so that vLLM computes the length in a way of its own."""
    kv_lora_rank: int | None = None
    qk_rope_head_dim: int | None = None
    nextn_predict_layers: int | None = None
    """Multi-token prediction layers that come with the model."""
    fc_norm: bool = False
    norm_output: bool = False
    use_aux_hidden_state: bool = True
    speculators_type: str = ""
    """Of a draft in the speculators format: its method."""
    remote_code: bool = False
    """Whether the repository brings classes of its own."""
    fp8_kv_cache: bool = False
    """Whether the checkpoint declares a KV cache in FP8, which vLLM's `auto` follows."""
    hidden_streams: bool = False
    """Whether a layer hands on several hidden states, so that hidden_size is not the width."""

    @property
    def mla(self) -> bool:
        """Multi-head latent attention, as in Kimi and DeepSeek: a latent is cached, not K and V."""
        return bool(self.kv_lora_rank)

    @property
    def architecture(self) -> str:
        """The first, which is what vLLM looks for first; empty: none is named."""
        return self.architectures[0] if self.architectures else ""

    @classmethod
    def from_json(cls, document: _Document) -> Self:
        """Read a config.json. Never raises: a value of another type counts as not said."""
        text = _language_model(document)
        eagle = document.get("eagle_config")
        aux = eagle.get("use_aux_hidden_state") if isinstance(eagle, dict) else None
        architectures = document.get("architectures")
        listed = architectures if isinstance(architectures, list) else []
        return cls(
            architectures=tuple(
                name[:_LONGEST_NAME]
                for name in listed[:_MOST_ARCHITECTURES]
                if isinstance(name, str)
            ),
            model_type=_text(document, "model_type") or _text(text, "model_type"),
            hidden_size=_count(text, "hidden_size"),
            target_hidden_size=_count(document, "target_hidden_size"),
            attention_heads=_count(text, "num_attention_heads"),
            kv_heads=_count(text, "num_key_value_heads"),
            head_dim=_count(text, "head_dim"),
            layers=_count(text, "num_hidden_layers"),
            vocab_size=_count(text, "vocab_size"),
            draft_vocab_size=_count(document, "draft_vocab_size"),
            max_position_embeddings=_count(text, "max_position_embeddings"),
            model_max_length=_count(text, "model_max_length"),
            rope_scaled=_rope_scaled(text),
            kv_lora_rank=_count(text, "kv_lora_rank"),
            qk_rope_head_dim=_count(text, "qk_rope_head_dim"),
            nextn_predict_layers=_count(text, "num_nextn_predict_layers"),
            # At the top level only; inside `eagle_config` vLLM does not look for them.
            fc_norm=document.get("fc_norm") is True,
            norm_output=document.get("norm_output") is True,
            use_aux_hidden_state=aux is not False,
            speculators_type=_text(document, "speculators_model_type"),
            remote_code=bool(document.get("auto_map")),
            fp8_kv_cache=_fp8_kv_cache(document),
            hidden_streams=any(key in text for key in ("hc_mult", "hc_count")),
        )


def _language_model(document: _Document) -> _Document:
    """The part that describes the language model; what it leaves out, the top may say."""
    for key in _NESTED:
        inner = document.get(key)
        if isinstance(inner, dict):
            return {**document, **inner}
    return document


def _text(document: _Document, key: str) -> str:
    value = document.get(key)
    return value[:_LONGEST_NAME] if isinstance(value, str) else ""


def _count(document: _Document, key: str) -> int | None:
    value = document.get(key)
    return value if type(value) is int and 0 <= value <= _LARGEST_COUNT else None


def _fp8_kv_cache(document: _Document) -> bool:
    """`get_kv_cache_quant_algo_string` in vllm/utils/torch_utils.py, which reads ModelOpt's only.

    What compressed-tensors declares, layers with MLA do not follow (mla_attention.py).
    """
    quantization = document.get("quantization_config")
    if not isinstance(quantization, dict):
        return False
    if not _text(quantization, "quant_method").startswith("modelopt"):
        return False
    inner = quantization.get("quantization")
    places = [inner, quantization] if isinstance(inner, dict) else [quantization]
    keys = ("kv_cache_scheme", "kv_cache_quant_algo")
    declared = (place.get(key) for key in keys for place in places)
    match next(filter(None, declared), None):
        case str(name):
            return name.lower() == "fp8"
        case dict(scheme):
            return scheme.get("num_bits") == _FP8_BITS and scheme.get("type") == "float"
        case _:
            return False


def _rope_scaled(text: _Document) -> bool:
    """Before transformers 5 `rope_scaling` says it, from then on a factor in `rope_parameters`."""
    return bool(text.get("rope_scaling")) or _has_factor(text.get("rope_parameters"))


def _has_factor(parameters: JsonValue) -> bool:
    if not isinstance(parameters, dict):
        return False
    return "factor" in parameters or any(_has_factor(each) for each in parameters.values())
