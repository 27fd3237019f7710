"""Which layers of a model keep a KV cache, a state for each request, or experts. Pure.

Layers of Mamba, gated delta-net, Kimi's delta attention, short convolution and linear attention
keep states: one for each running request, and one more for each token that it may speculate
(`get_kv_cache_spec` in vllm/model_executor/layers/mamba/abstract.py, 0.28 to 0.33), however deep it
drafts. Shapes: `MambaStateShapeCalculator` in vllm/model_executor/layers/mamba/mamba_utils.py.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pydantic import JsonValue

_Document = Mapping[str, JsonValue]

_LISTS: Final = ("layers_block_type", "layer_types", "attn_type_list", "hybrid_override_pattern")
"""Keys that say of each layer what it is; the last one in letters."""
_STATE: Final = frozenset(
    {"linear_attention", "mamba", "mamba2", "conv", "short_conv", "kda", "M", 0}
)
_BOTH: Final = frozenset({"hybrid"})
_NEITHER: Final = frozenset({"moe", "mlp", "-", "E"})
_ALL_STATES: Final = frozenset({"mamba", "mamba2", "falcon_mamba"})
_ALL_BOTH: Final = frozenset({"falcon_h1"})
"""Values of `model_type` whose layers are all alike."""
_TYPE_BYTES: Final = {"float32": 4, "float16": 2, "bfloat16": 2}
_MOST_LAYERS: Final = 4096
_EXPERTS: Final = ("num_experts", "moe_num_experts", "n_routed_experts", "num_local_experts")
_EXPERTS_HINT: Final = re.compile(r"moe|expert|mixtral|deepseek|dbrx|jamba", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class StateShape:
    """One layer's state, in counts of numbers over all GPUs that share the layer."""

    width: int
    """Numbers in a column of the convolution, without its groups."""
    groups: int = 0
    group_width: int = 0
    kernel: int
    """Columns, and one more."""
    recurrent: int
    type_bytes: int | None = None
    """Bytes of a recurrent number, as the model has it; None: as the rest of it."""

    def content_bytes(self, *, gpus: int, depth: int, type_bytes: int, other_bytes: int) -> int:
        """Bytes on each GPU.

        Args:
            gpus: that share the layer.
            depth: the deepest: the convolution has a column more for each token of it.
            type_bytes: of a recurrent number.
            other_bytes: of any other.
        """
        spread = 0 if self.groups % gpus == 0 else gpus - self.groups
        width = self.width + (self.groups + spread) * self.group_width
        columns = self.kernel - 1 + depth
        return width // gpus * columns * other_bytes + self.recurrent // gpus * type_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Layers:
    """How many keep what. A model of which nothing is said keeps a KV cache in all."""

    attention: int | None = None
    """None: not known."""
    states: int | None = None
    """None: some do, and not known how many."""
    shape: StateShape | None = None
    """One state's; None: not known."""


def layers_of(text: _Document) -> Layers | None:
    """What a config.json says; None: no layer keeps a state.

    Args:
        text: the part that describes the language model.
    """
    layers = _count(text, "num_hidden_layers")
    kinds = _kinds(text, layers)
    if not any(each in _STATE or each in _BOTH for each in kinds):
        return None
    shape = _shape(text)
    if layers is None or not kinds or layers % len(kinds):
        return Layers(shape=shape)
    # A list may be of one period of the layers.
    times = layers // len(kinds)
    states = sum(each in _STATE or each in _BOTH for each in kinds)
    attention = sum(each not in _STATE and each not in _NEITHER for each in kinds)
    return Layers(attention=attention * times, states=states * times, shape=shape)


def has_experts(text: _Document) -> bool | None:
    """Source: `get_num_experts` in vllm/transformers_utils/model_arch_config_convertor.py.

    A configuration class may have a default where the document says nothing: then some other key
    or the name of the architecture hints at it.
    """
    counts = [text.get(key) for key in _EXPERTS]
    blocks = text.get("block_configs")
    counts += [
        block.get("n_routed_experts")
        for block in (blocks if isinstance(blocks, list) else ())
        if isinstance(block, dict) and block.get("block_type") == "moe"
    ]
    if any(each and isinstance(each, int | list) for each in counts):
        return True
    named = " ".join(map(str, (text.get("architectures"), text.get("model_type"))))
    hints = [named, *(key for key, value in text.items() if value)]
    if "num_hidden_layers" not in text or any(_EXPERTS_HINT.search(each) for each in hints):
        return None
    return False


def _kinds(text: _Document, layers: int | None) -> Sequence[JsonValue]:
    named = str(text.get("model_type"))
    if named in _ALL_STATES or named in _ALL_BOTH:
        return ["hybrid" if named in _ALL_BOTH else "mamba"]
    for key in _LISTS:
        found = text.get(key)
        if isinstance(found, list | str) and found:
            return [each for each in found[:_MOST_LAYERS] if isinstance(each, str | int)]
    linear = text.get("linear_attn_config")
    if isinstance(linear, dict) and isinstance(kda := linear.get("kda_layers"), list) and kda:
        # Numbered from one.
        return ["kda" if each + 1 in kda else "attention" for each in range(layers or 0)] or ["kda"]
    interval = _count(text, "full_attention_interval")
    if interval and _count(text, "linear_num_value_heads"):
        return ["linear_attention"] * (interval - 1) + ["attention"]
    return []


def _shape(text: _Document) -> StateShape | None:
    """None: of a kind that is not known, or not in numbers."""
    numbers = _counts(
        text,
        "linear_num_key_heads",
        "linear_num_value_heads",
        "linear_key_head_dim",
        "linear_value_head_dim",
        "linear_conv_kernel_dim",
    )
    told = _TYPE_BYTES.get(str(text.get("mamba_ssm_dtype")))
    if numbers is not None:
        keys, values, key_width, value_width, kernel = numbers
        return StateShape(
            width=2 * key_width * keys + value_width * values,
            kernel=kernel,
            recurrent=values * value_width * key_width,
            type_bytes=told,
        )
    numbers = _counts(
        text, "mamba_num_heads", "mamba_head_dim", "n_groups", "ssm_state_size", "conv_kernel"
    )
    if numbers is not None:
        heads, width, groups, size, kernel = numbers
        return StateShape(
            width=heads * width,
            groups=groups,
            group_width=2 * size,
            kernel=kernel,
            recurrent=heads * width * size,
            # `NemotronHForCausalLMConfig` in vllm/model_executor/models/config.py
            type_bytes=_TYPE_BYTES.get(str(text.get("mamba_ssm_cache_dtype", "float32"))),
        )
    return None


def _counts(text: _Document, *keys: str) -> Sequence[int] | None:
    found = [each for key in keys if (each := _count(text, key))]
    return found if len(found) == len(keys) else None


def _count(text: _Document, key: str) -> int | None:
    value = text.get(key)
    return value if type(value) is int and 0 <= value < 1 << 32 else None
