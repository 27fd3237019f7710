"""Headers of EAGLE 3 drafts, as trainers write them."""

import json
from collections.abc import Mapping
from typing import Any, Final

from fathom_intake.model_weights import Tensor, tensors_of

Shapes = dict[str, tuple[int, ...]]

_TYPES: Final = {"d2t": "I64", "t2d": "BOOL"}


def shapes_of(config: Mapping[str, Any], states: int = 3, layer: str = "midlayer") -> Shapes:
    """Every tensor of a draft by its config.json, with embeddings and a head of its own.

    Args:
        config: with the sizes at its top.
        states: hidden states that it reads.
        layer: the name of its layer: `layers.0` in the speculators format.
    """
    hidden, vocabulary = config["hidden_size"], config["vocab_size"]
    width = config.get("target_hidden_size") or hidden
    proposed = config.get("draft_vocab_size") or vocabulary
    found: Shapes = {
        "embed_tokens.weight": (vocabulary, hidden),
        "fc.weight": (hidden, states * width),
        "norm.weight": (hidden,),
        "lm_head.weight": (proposed, hidden),
        **{f"{layer}.{name}.weight": (hidden,) for name in ("hidden_norm", "input_layernorm")},
        f"{layer}.post_attention_layernorm.weight": (hidden,),
    }
    if config.get("kv_lora_rank"):
        found[f"{layer}.self_attn.q_a_proj.weight"] = (64, 2 * hidden)
    else:
        heads, inner = config["num_attention_heads"], config.get("intermediate_size") or hidden
        size = config.get("head_dim") or hidden // heads
        for name, rows in (("q", heads), ("k", config["num_key_value_heads"])):
            found[f"{layer}.self_attn.{name}_proj.weight"] = (rows * size, 2 * hidden)
        found[f"{layer}.self_attn.v_proj.weight"] = found[f"{layer}.self_attn.k_proj.weight"]
        found[f"{layer}.self_attn.o_proj.weight"] = (hidden, heads * size)
        for name in ("gate", "up"):
            found[f"{layer}.mlp.{name}_proj.weight"] = (inner, hidden)
        found[f"{layer}.mlp.down_proj.weight"] = (hidden, inner)
    if config.get("fc_norm"):
        found |= {f"fc_norm.{index}.weight": (width,) for index in range(states)}
    if proposed < vocabulary:
        found |= {"d2t": (proposed,), "t2d": (vocabulary,)}
    return found


def changed(shapes: Shapes, changes: Mapping[str, tuple[int, ...] | None]) -> Shapes:
    """Shapes with others, with more tensors, and without those whose shape is None."""
    both = {**shapes, **changes}
    return {name: shape for name, shape in both.items() if shape is not None}


def header_of(shapes: Shapes, dtypes: Mapping[str, str] | None = None) -> dict[str, Any]:
    """What the header of one file says of them."""
    types = {**_TYPES, **(dtypes or {})}
    return {
        "__metadata__": {"format": "pt"},
        **{
            name: {"dtype": types.get(name, "BF16"), "shape": [*shape], "data_offsets": [0, 0]}
            for name, shape in shapes.items()
        },
    }


def tensors_from(
    shapes: Shapes, dtypes: Mapping[str, str] | None = None
) -> tuple[Tensor, ...] | None:
    """What is known of a file with these tensors."""
    return tensors_of(header_of(shapes, dtypes))


def file_of(header: Mapping[str, Any]) -> bytes:
    """The beginning of a file with this header."""
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text
