"""Writes the constructed pair. Runs inside the engine's environment: it needs torch.

It and `language` are all that it takes: an init container has them from a ConfigMap (docs/kind.md).

The target is a Llama whose attention and MLP add nothing, so the hidden state at a token is that
token's embedding, a random unit vector. Its head's row for the successor of a token is the token's
embedding: greedy decoding walks the cycles of `walk`. The layers cost what layers cost.

`draft` is an EAGLE 3.1 head of the same kind. Attention is bent so that each position attends to
itself (queries and keys are one large constant; only rotary positions tell them apart), its value
is the embedding half of the input, and its head is the target's with the rows of the successors of
hard tokens exchanged among each other: wrong there, always, and right everywhere else.

`draft-eagle3` is an EAGLE 3 head for the same target, to which more tokens are hard.
"""

import argparse
import json
from collections.abc import Iterable
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, pre_tokenizers
from tokenizers.models import WordLevel

from local_cluster.engine.language import (
    BOS,
    CYCLE_TOKENS,
    EAGLE3_CLASSES,
    EOS,
    PAD,
    SPECIAL_TOKENS,
    TRAFFIC_CLASSES,
    UNKNOWN,
    VOCABULARY,
    PairShape,
    TrafficClass,
    vocabulary,
)

_SEED = 7
_ATTENTION_BIAS = 12.0
_VALUE_GAIN = 20.0
"""The attention's output over the residual, which carries the position before: drowned out."""
_EAGLE31 = {"fc_norm": True, "norm_output": True}
"""What makes a draft EAGLE 3.1 rather than 3."""
_EAGLE3 = {"norm_before_residual": True}
"""Without `norm_output` the residual would grow with each draft, and not be drowned out."""

# Not a chat model; enough for a client that only knows the chat endpoint.
_CHAT_TEMPLATE = "{{ messages[-1]['content'] }}"


def write_pair(directory: Path, shape: PairShape) -> None:
    """Write `target/`, `draft/` and `draft-eagle3/` under `directory`."""
    generator = torch.Generator().manual_seed(_SEED)
    embedding = torch.randn(VOCABULARY, shape.hidden, generator=generator)
    embedding /= embedding.norm(dim=1, keepdim=True)
    target = _target_weights(shape, embedding, _right_head(embedding), generator)
    _write(directory / "target", _target_config(shape), _of_type(shape, target))
    draft = _draft_weights(shape, embedding, _draft_head(embedding, TRAFFIC_CLASSES.values()))
    draft |= {f"fc_norm.{index}.weight": torch.ones(shape.hidden) for index in range(3)}
    _write(directory / "draft", _draft_config(shape) | _EAGLE31, _of_type(shape, draft))
    older = _draft_weights(shape, embedding, _draft_head(embedding, EAGLE3_CLASSES))
    _write(directory / "draft-eagle3", _draft_config(shape) | _EAGLE3, _of_type(shape, older))


def _right_head(embedding: torch.Tensor) -> torch.Tensor:
    head = torch.zeros_like(embedding)
    for traffic in TRAFFIC_CLASSES.values():
        tokens = torch.arange(traffic.first_token, traffic.first_token + CYCLE_TOKENS)
        head[tokens.roll(-1)] = embedding[tokens]
    return head


def _draft_head(embedding: torch.Tensor, classes: Iterable[TrafficClass]) -> torch.Tensor:
    head = _right_head(embedding)
    for traffic in classes:
        head[_successors(traffic)] = embedding[list(traffic.hard_tokens)].roll(1, dims=0)
    return head


def _of_type(shape: PairShape, weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    dtype = getattr(torch, shape.dtype)
    return {name: tensor.to(dtype) for name, tensor in weights.items()}


def _successors(traffic: TrafficClass) -> list[int]:
    return [traffic.successor(token) for token in traffic.hard_tokens]


def _target_weights(
    shape: PairShape,
    embedding: torch.Tensor,
    head: torch.Tensor,
    generator: torch.Generator,
) -> dict[str, torch.Tensor]:
    hidden, inner = shape.hidden, shape.intermediate
    weights = {
        "model.embed_tokens.weight": embedding,
        "model.norm.weight": torch.ones(hidden),
        "lm_head.weight": head,
    }
    for layer in range(shape.target_layers):
        prefix = f"model.layers.{layer}"
        for name in ("q_proj", "k_proj", "v_proj"):
            weights[f"{prefix}.self_attn.{name}.weight"] = 0.02 * torch.randn(
                hidden, hidden, generator=generator
            )
        for name in ("gate_proj", "up_proj"):
            weights[f"{prefix}.mlp.{name}.weight"] = 0.02 * torch.randn(
                inner, hidden, generator=generator
            )
        weights[f"{prefix}.self_attn.o_proj.weight"] = torch.zeros(hidden, hidden)
        weights[f"{prefix}.mlp.down_proj.weight"] = torch.zeros(hidden, inner)
        weights[f"{prefix}.input_layernorm.weight"] = torch.ones(hidden)
        weights[f"{prefix}.post_attention_layernorm.weight"] = torch.ones(hidden)
    return weights


def _draft_weights(
    shape: PairShape, embedding: torch.Tensor, head: torch.Tensor
) -> dict[str, torch.Tensor]:
    hidden, inner = shape.hidden, shape.draft_intermediate
    identity = torch.eye(hidden)
    constant = torch.full((hidden,), _ATTENTION_BIAS)
    return {
        "embed_tokens.weight": embedding,
        "fc.weight": torch.zeros(hidden, 3 * hidden),
        "norm.weight": torch.ones(hidden),
        "lm_head.weight": head,
        "midlayer.input_layernorm.weight": torch.ones(hidden),
        "midlayer.hidden_norm.weight": torch.ones(hidden),
        "midlayer.post_attention_layernorm.weight": torch.ones(hidden),
        "midlayer.self_attn.q_proj.weight": torch.zeros(hidden, 2 * hidden),
        "midlayer.self_attn.k_proj.weight": torch.zeros(hidden, 2 * hidden),
        "midlayer.self_attn.v_proj.weight": torch.cat([identity, torch.zeros_like(identity)], 1),
        "midlayer.self_attn.q_proj.bias": constant,
        "midlayer.self_attn.k_proj.bias": constant.clone(),
        "midlayer.self_attn.v_proj.bias": torch.zeros(hidden),
        "midlayer.self_attn.o_proj.weight": _VALUE_GAIN * identity,
        # vLLM makes this parameter with `attention_bias` and never zeroes it itself.
        "midlayer.self_attn.o_proj.bias": torch.zeros(hidden),
        "midlayer.mlp.gate_proj.weight": torch.zeros(inner, hidden),
        "midlayer.mlp.up_proj.weight": torch.zeros(inner, hidden),
        "midlayer.mlp.down_proj.weight": torch.zeros(hidden, inner),
    }


def _target_config(shape: PairShape) -> dict[str, object]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": VOCABULARY,
        "hidden_size": shape.hidden,
        "intermediate_size": shape.intermediate,
        "num_hidden_layers": shape.target_layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.heads,
        "head_dim": shape.hidden // shape.heads,
        "hidden_act": "silu",
        "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "torch_dtype": shape.dtype,
        "pad_token_id": PAD,
        "bos_token_id": BOS,
        "eos_token_id": EOS,
    }


def _draft_config(shape: PairShape) -> dict[str, object]:
    return {
        **_target_config(shape),
        "architectures": ["LlamaForCausalLMEagle3"],
        "num_hidden_layers": 1,
        "intermediate_size": shape.draft_intermediate,
        "draft_vocab_size": VOCABULARY,
        "attention_bias": True,
        "eagle_config": {
            "use_aux_hidden_state": True,
            "eagle_aux_hidden_state_layer_ids": [
                1,
                shape.target_layers // 2,
                shape.target_layers - 1,
            ],
        },
    }


def _write(directory: Path, config: dict[str, object], weights: dict[str, torch.Tensor]) -> None:
    # An init container may run again.
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    save_file(weights, directory / "model.safetensors", metadata={"format": "pt"})
    tokenizer = Tokenizer(WordLevel(vocabulary(), unk_token=SPECIAL_TOKENS[UNKNOWN]))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens(list(SPECIAL_TOKENS))
    tokenizer.save(str(directory / "tokenizer.json"))
    (directory / "tokenizer_config.json").write_text(
        json.dumps(
            {
                "tokenizer_class": "PreTrainedTokenizerFast",
                "pad_token": SPECIAL_TOKENS[PAD],
                "bos_token": SPECIAL_TOKENS[BOS],
                "eos_token": SPECIAL_TOKENS[EOS],
                "unk_token": SPECIAL_TOKENS[UNKNOWN],
                "chat_template": _CHAT_TEMPLATE,
                "clean_up_tokenization_spaces": False,
            },
            indent=2,
        )
        + "\n"
    )


def main() -> None:
    """`python -m local_cluster.engine.weights DIRECTORY [SHAPE]`, the shape as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("shape", type=json.loads, nargs="?", default="{}")
    arguments = parser.parse_args()
    write_pair(arguments.directory, PairShape(**arguments.shape))


if __name__ == "__main__":
    main()
