"""What is known of a model without its weights: its config.json, its files, or why nothing is."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Final, Self

from pydantic import JsonValue

from fathom.model_layers import Layers, has_experts, layers_of
from fathom_intake.model_weights import Weights

_Document = Mapping[str, JsonValue]

_FP8_BITS: Final = 8
_LONGEST_NAME: Final = 128
_MOST_ARCHITECTURES: Final = 8
_MOST_LAYERS: Final = 1024
_LARGEST_COUNT: Final = 1 << 53
"""What a float holds exactly. A larger one is no size of anything."""
_LAYERS: Final = "transformer_layer_config"
_NESTED: Final = ("text_config", _LAYERS)
"""Where the language model stands if not at the top: in a multimodal model, and in a draft in the
format of vLLM's speculators library (vllm/transformers_utils/configs/speculators)."""
_EAGLE_KEYS: Final = (
    "draft_vocab_size",
    "eagle_config",
    "eagle_aux_hidden_state_layer_ids",
    "num_aux_hidden_states",
    "target_hidden_size",
    "norm_before_fc",
    "norm_before_residual",
    "fc_norm",
    "norm_output",
)
"""Keys that only a draft of EAGLE 3 has."""
EAGLE3_SPECULATORS: Final = frozenset({"eagle3", "peagle"})
"""Types of drafts in the speculators format that have the weights of EAGLE 3."""
_RUN: Final = ("AutoConfig", "AutoModel")
"""Keys of `auto_map` whose classes vLLM may load for a draft; its own formats have others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """One model's shape. Sizes are counts of numbers, not bytes."""

    architectures: tuple[str, ...] = ()
    model_type: str = ""
    hidden_size: int | None = None
    target_hidden_size: int | None = None
    """Width of the hidden states that a draft was trained on, if not its own."""
    attention_heads: int | None = None
    kv_heads: int | None = None
    head_dim: int | None = None
    layers: int | None = None
    hybrid: Layers | None = None
    """Which layers keep a state for each request; None: none does."""
    vocab_size: int | None = None
    draft_vocab_size: int | None = None
    """Number of those tokens that a draft can propose."""
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
    norm_before_fc: bool = False
    use_aux_hidden_state: bool = True
    aux_layers: tuple[int, ...] = ()
    """Layers of the target whose hidden states a draft reads, as named at the top."""
    eagle_config_layers: tuple[int, ...] = ()
    """The same, as `eagle_config` names them."""
    aux_hidden_states: int | None = None
    """How many such layers there are."""
    aux_layer_count: int | None = None
    """The same, as drafts with layers of Qwen 3 may name it; vLLM asks of these for it first."""
    eagle_keys: bool = False
    """Whether it has a key that only a draft of EAGLE 3 has."""
    trained_for: tuple[str, ...] = ()
    """Architectures of the target that a draft was trained for."""
    target_layers: int | None = None
    """Layers of the target that a draft was trained for."""
    speculators_type: str = ""
    """Method of a draft in the speculators format."""
    layer_type: str = ""
    """`model_type` of such a draft's layers."""
    remote_code: bool = False
    """Whether the repository brings classes of its own."""
    runs_code: bool = False
    """Whether those may run in an engine that trusts them."""
    fp8_kv_cache: bool = False
    """Whether the checkpoint declares a KV cache in FP8, which vLLM's `auto` follows."""
    quantization: str = ""
    """How the checkpoint is quantised, as it names it; empty: it does not say."""
    has_experts: bool | None = None
    """Whether it is a mixture of experts; None: not known, as where only a name hints at it."""
    hidden_streams: bool = False
    """Whether a layer hands on several hidden states, so that hidden_size is not the width."""

    @property
    def mla(self) -> bool:
        """Multi-head latent attention, as in Kimi and DeepSeek: a latent is cached, not K and V."""
        return bool(self.kv_lora_rank)

    @property
    def attention_layers(self) -> int:
        """Layers that keep a KV cache; 0: not known."""
        return (self.layers if self.hybrid is None else self.hybrid.attention) or 0

    @property
    def like_eagle3(self) -> bool:
        """Whether anything in it says that it is a draft of EAGLE 3."""
        return self.named_eagle3 or bool(self.speculators_type) or self.remote_code

    @property
    def named_eagle3(self) -> bool:
        """Whether its own keys, or names in it, say so."""
        named = any("eagle3" in name.lower() for name in self.architectures)
        keys = self.eagle_keys or self.fc_norm or self.norm_output
        ours = self.speculators_type in EAGLE3_SPECULATORS
        return named or ours or keys or self.draft_vocab_size is not None

    @property
    def architecture(self) -> str:
        """The first, which is what vLLM looks for first; empty: none is named."""
        return self.architectures[0] if self.architectures else ""

    @classmethod
    def from_json(cls, document: _Document) -> Self:
        """Read a config.json. Never raises: a value of another type counts as not said."""
        text = _language_model(document)
        speculators = _text(document, "speculators_model_type")
        # Of such a draft vLLM reads these where its layers are described, and the first at the top.
        drafting = _inner(document, _LAYERS) if speculators else document
        eagle = _inner(drafting, "eagle_config")
        verifier = _inner(_inner(document, "speculators_config"), "verifier")
        return cls(
            architectures=_names(document),
            model_type=_text(document, "model_type") or _text(text, "model_type"),
            hidden_size=_count(text, "hidden_size"),
            target_hidden_size=_count(document, "target_hidden_size"),
            attention_heads=_count(text, "num_attention_heads"),
            kv_heads=_count(text, "num_key_value_heads"),
            head_dim=_count(text, "head_dim"),
            layers=_count(text, "num_hidden_layers"),
            hybrid=layers_of(text),
            vocab_size=_count(text, "vocab_size"),
            draft_vocab_size=_count(document, "draft_vocab_size"),
            max_position_embeddings=_count(text, "max_position_embeddings"),
            model_max_length=_count(text, "model_max_length"),
            rope_scaled=_rope_scaled(text),
            kv_lora_rank=_count(text, "kv_lora_rank"),
            qk_rope_head_dim=_count(text, "qk_rope_head_dim"),
            nextn_predict_layers=_nextn_layers(text),
            # At the top level only; inside `eagle_config` vLLM does not look for them.
            fc_norm=bool(document.get("fc_norm")),
            norm_output=bool(document.get("norm_output")),
            norm_before_fc=bool(eagle.get("norm_before_fc", document.get("norm_before_fc"))),
            use_aux_hidden_state=eagle.get("use_aux_hidden_state") is not False,
            aux_layers=_layers(document, "eagle_aux_hidden_state_layer_ids"),
            eagle_config_layers=_layers(eagle, "eagle_aux_hidden_state_layer_ids"),
            aux_hidden_states=_count(drafting, "num_aux_hidden_states"),
            aux_layer_count=_count(drafting, "num_aux_layers"),
            eagle_keys=any(key in document for key in _EAGLE_KEYS),
            trained_for=_names(verifier),
            target_layers=_count(text, "num_target_layers"),
            speculators_type=speculators,
            layer_type=_text(_inner(document, _LAYERS), "model_type"),
            remote_code=bool(document.get("auto_map")),
            runs_code=any(key.startswith(_RUN) for key in _inner(document, "auto_map")),
            fp8_kv_cache=_fp8_kv_cache(document),
            quantization=_text(_inner(document, "quantization_config"), "quant_method"),
            has_experts=has_experts(text),
            hidden_streams=any(key in text for key in ("hc_mult", "hc_count")),
        )


def _language_model(document: _Document) -> _Document:
    """The part that describes the language model; what it leaves out, the top may say."""
    for key in _NESTED:
        inner = document.get(key)
        if isinstance(inner, dict):
            return {**document, **inner}
    return document


def _inner(document: _Document, key: str) -> _Document:
    """An object within; empty: there is none."""
    inner = document.get(key)
    return inner if isinstance(inner, dict) else {}


def _names(document: _Document) -> tuple[str, ...]:
    listed = document.get("architectures")
    names = listed[:_MOST_ARCHITECTURES] if isinstance(listed, list) else []
    return tuple(name[:_LONGEST_NAME] for name in names if isinstance(name, str))


def _layers(document: _Document, key: str) -> tuple[int, ...]:
    """Numbers of layers; none where something else is among them."""
    listed = document.get(key)
    found = listed[:_MOST_LAYERS] if isinstance(listed, list) else []
    layers = tuple(each for each in found if type(each) is int)
    return layers if len(layers) == len(found) else ()


def _text(document: _Document, key: str) -> str:
    value = document.get(key)
    return value[:_LONGEST_NAME] if isinstance(value, str) else ""


def _count(document: _Document, key: str) -> int | None:
    value = document.get(key)
    return value if type(value) is int and 0 <= value <= _LARGEST_COUNT else None


def _nextn_layers(text: _Document) -> int | None:
    """By either name: `hf_config_override` in vllm/config/speculative.py."""
    found = _count(text, "num_nextn_predict_layers")
    return _count(text, "mtp_num_hidden_layers") if found is None else found


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


class Absence(Enum):
    """Why a model's config.json is not at hand."""

    NOT_LOCAL = "no such directory here"
    UNREADABLE = "there, and no config.json can be read from it"
    GATED = "the hub wants a token that has been given access"
    MISSING = "the hub knows no such repository, revision or file, or does not show it"
    UNREACHABLE = "the hub did not answer"
    OFFLINE = "the hub is not to be asked"
    NOT_YET = "it is being asked for"
    NO_MODEL = "the method has none"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """One model, as far as it is known."""

    config: ModelConfig | None = None
    source: str = "its config.json"
    """Where the config is from, in words."""
    weights: Weights = field(default_factory=Weights)
    absence: Absence | None = None
    """Why there is no config; None: there is one."""
    explanation: str = ""
    """The absence as a sentence that names the model and says what to do, without the period."""

    @property
    def awaited(self) -> bool:
        """Whether the hub may tell more within seconds, so that it is worth a moment's waiting."""
        return self.config is None and self.absence in _MAY_PASS

    def or_before(self, before: "ModelFacts | None") -> "ModelFacts":
        """These, or what was known before: a hub that is down or forgets takes nothing back."""
        if before is None:
            return self
        if self.config is None:
            return before if before.config is not None else self
        if self.config != before.config:
            return self
        return replace(self, weights=self.weights.or_before(before.weights))


_MAY_PASS: Final = frozenset({Absence.NOT_YET, Absence.UNREACHABLE, Absence.GATED, Absence.MISSING})
"""A hub that answers 401 or 404 for a moment is as common as one that does not answer."""


NO_MODEL: Final = ModelFacts(absence=Absence.NO_MODEL)
"""Facts of a draft, for methods that load none."""
