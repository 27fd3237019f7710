"""What is known of a model's weight files, and what of a draft's does not fit its config.json.

Of a file in the safetensors format no more is read than its header: names, types and shapes
(https://huggingface.co/docs/safetensors/index#format). The operator judges published drafts by it,
and the program of this package those that were trained elsewhere. Pure, the standard library alone.

What vLLM makes of each tensor: `load_weights` in llama_eagle3.py, deepseek_eagle3.py and
qwen3_eagle3.py, `AutoWeightsLoader` in model_executor/models/utils.py, `weight_loader` in
vocab_parallel_embedding.py and linear.py. Read in 0.28, 0.30, 0.32 and 0.33, where they are the
same; run in 0.28 and 0.32. None of it looks whether all is there that should be.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from math import prod
from types import MappingProxyType
from typing import Final

TYPE_BYTES: Final[Mapping[str, int]] = MappingProxyType(
    {
        **dict.fromkeys(("F64", "I64", "U64"), 8),
        **dict.fromkeys(("F32", "I32", "U32"), 4),
        **dict.fromkeys(("F16", "BF16", "I16", "U16"), 2),
        **dict.fromkeys(("F8_E4M3", "F8_E5M2", "F8_E8M0", "I8", "U8", "BOOL"), 1),
    }
)
"""Bytes of a number, by its type as the format names it: those that weights of vLLM have."""
_MATTERS: Final = re.compile(r"d2t|lm_head|embed_tokens|(?:^|\.)(?:fc|fc_norm|input_norm)\.")
"""In the names of tensors that a draft of EAGLE 3 is judged by."""
_MOST_TENSORS: Final = 64
"""A draft has a dozen of those."""
_LONGEST_NAME: Final = 128
_MOST_DIMENSIONS: Final = 8
_LARGEST: Final = 1 << 53
_PLAIN: Final = frozenset({"F64", "F32", "F16", "BF16"})
"""Types of weights that are not quantised, so that their shape is the layer's."""
_TABLE: Final = "d2t"
_METADATA: Final = "__metadata__"
_FROM_TO: Final = ("begin", "end")
_ADDED: Final = "model."
"""vLLM puts it before every name itself."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """One of a model's tensors, as a header describes it."""

    name: str
    dtype: str = ""
    """As the format names it, such as BF16; empty: not known."""
    shape: tuple[int, ...] | None = None
    """None: not known, as of one that an index names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """What is known of a model's weight files. None of them is ever read beyond its header."""

    total_bytes: int | None = None
    """Size of the files that vLLM loads by default; None: unknown."""
    tensors: tuple[Tensor, ...] | None = None
    """Those that a draft of EAGLE 3 is judged by; None: unknown, or it is no such draft."""
    pickled: bool | None = None
    """Whether vLLM would read pickles, as there is nothing else; None: unknown."""
    index_lacks: str = ""
    """A file that the index names and that is not there; empty: none is known."""
    link: str = ""
    """A file of a folder that is a link to somewhere else; empty: none is known."""

    @property
    def has_d2t(self) -> bool | None:
        """Whether they hold the table from draft tokens to target tokens; None: unknown.

        vLLM takes any tensor for it whose name has `d2t` in it.
        """
        return None if self.tensors is None else _any_named(self.tensors, _TABLE)

    def or_before(self, before: "Weights") -> "Weights":
        """These, and where they are unknown what was known of the same model before."""
        headers = before if self.tensors is None else self
        return Weights(
            total_bytes=before.total_bytes if self.total_bytes is None else self.total_bytes,
            tensors=headers.tensors,
            pickled=before.pickled if self.pickled is None else self.pickled,
            index_lacks=headers.index_lacks,
            link=self.link,
        )


def tensors_of(header: object) -> tuple[Tensor, ...] | None:
    """The tensors that matter of what a file's header says; None: it is none that can be read.

    Args:
        header: the JSON document at a file's beginning.
    """
    if not isinstance(header, dict):
        return None
    found = [_tensor(name, header[name]) for name in _mattering(header)]
    read = tuple(each for each in found if each is not None)
    return read if len(read) == len(found) <= _MOST_TENSORS else None


def tensors_named(index: Mapping[str, str]) -> tuple[Tensor, ...] | None:
    """The same of the names in an index, which says no more of them."""
    names = _mattering(index)
    fit = len(names) <= _MOST_TENSORS and all(len(each) <= _LONGEST_NAME for each in names)
    return tuple(Tensor(each) for each in names) if fit else None


@dataclass(frozen=True, slots=True)
class Placed:
    """A tensor, and where in its file it is."""

    tensor: Tensor
    begin: int
    """Bytes from the end of the header to its first one."""
    end: int
    """The same to the first one behind it."""


def layout_of(header: object, data_bytes: int) -> tuple[Placed, ...] | None:
    """Every tensor of a file, in the order in which they are in it.

    Source: `Metadata::validate` in the safetensors library, which reads no other file.

    Args:
        header: the JSON document at the file's beginning.
        data_bytes: what follows it.

    Returns:
        None where they are not one after the other, without a gap, to the file's end, or where one
        has a type that is not in `TYPE_BYTES`.
    """
    if not isinstance(header, dict) or not _is_metadata(header.get(_METADATA, {})):
        return None
    found = [_placed(name, header[name]) for name in header if name != _METADATA]
    placed = [each for each in found if each is not None]
    placed.sort(key=lambda each: (each.begin, each.end))
    ends = [0, *(each.end for each in placed)]
    begins = [*(each.begin for each in placed), data_bytes]
    return tuple(placed) if begins == ends and len(placed) == len(found) else None


def _placed(name: str, described: object) -> Placed | None:
    tensor = _tensor(name, described)
    offsets = described.get("data_offsets") if isinstance(described, dict) else None
    if tensor is None or tensor.shape is None or not isinstance(offsets, list):
        return None
    size = TYPE_BYTES.get(tensor.dtype)
    whole = len(offsets) == len(_FROM_TO) and all(type(each) is int for each in offsets)
    if size is None or not whole or offsets[1] - offsets[0] != prod(tensor.shape) * size:
        return None
    return Placed(tensor, *offsets)


def _is_metadata(value: object) -> bool:
    """Texts by name: the library reads nothing else."""
    return isinstance(value, dict) and all(isinstance(each, str) for each in value.values())


def weight_map(index: object) -> Mapping[str, str] | None:
    """From each tensor to the file that holds it, as an index has it; None: it cannot be read."""
    found = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(found, dict) or not all(isinstance(each, str) for each in found.values()):
        return None
    return found


def _mattering(names: Iterable[object]) -> list[str]:
    return sorted(each for each in names if isinstance(each, str) and _MATTERS.search(each))


def _tensor(name: str, described: object) -> Tensor | None:
    if not isinstance(described, dict) or len(name) > _LONGEST_NAME:
        return None
    dtype, shape = described.get("dtype"), described.get("shape")
    if not isinstance(dtype, str) or not isinstance(shape, list) or len(shape) > _MOST_DIMENSIONS:
        return None
    sizes = tuple(each for each in shape if type(each) is int and 0 <= each <= _LARGEST)
    return Tensor(name, dtype[:_LONGEST_NAME], sizes) if len(sizes) == len(shape) else None


def _any_named(tensors: Iterable[Tensor], part: str) -> bool:
    return any(part in f".{each.name}" for each in tensors)


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedWeights:
    """What a draft of EAGLE 3 and its target ask of its weights. None: not known."""

    hidden_size: int | None = None
    target_hidden_size: int | None = None
    """Width of each hidden state that it reads."""
    hidden_states: int | None = None
    """How many its `fc` joins; 0: it has none."""
    vocab_size: int | None = None
    draft_vocab_size: int | None = None
    """Number of tokens that it proposes."""
    fc_norm: bool = False
    norm_before_fc: bool = False
    embedding_width: int | None = None
    """The target's, which lends its embeddings and its head to a draft that has none."""
    table_unread: bool = False
    """Whether this vLLM has no place for `d2t` where all tokens are proposed."""

    def shapes(self) -> Mapping[str, tuple[int | None, ...]]:
        """What vLLM makes space for, by name."""
        hidden, width = self.hidden_size, self.target_hidden_size
        states = self.hidden_states or 0
        joined = width * states if width and states else None
        return {
            "embed_tokens.weight": (self.vocab_size, hidden),
            "lm_head.weight": (self.draft_vocab_size, hidden),
            _TABLE: (self.draft_vocab_size,),
            **({"fc.weight": (hidden, joined)} if self.hidden_states != 0 else {}),
            **{f"fc_norm.{index}.weight": (width,) for index in range(states)},
        }


class FaultKind(Enum):
    """What is wrong with weights."""

    SHAPE = "shape"
    PREFIXED = "prefixed"
    LACKS_FC = "lacks fc"
    LACKS_LENT = "lacks what cannot be lent"
    LACKS_NORMS = "lacks norms"
    LACKS_TABLE = "lacks d2t"
    NORMS_UNREAD = "norms unread"
    TABLE_UNREAD = "d2t unread"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One thing that is wrong with a draft's weights, in words."""

    kind: FaultKind
    message: str
    """Half a sentence that begins with what the weights hold, and says what comes of it."""
    cure: str = "Use another draft or revision"
    certain: bool = True
    """Whether it is certain to fail; else it may be meant so."""


def faults_of(tensors: Iterable[Tensor], wanted: WantedWeights) -> Iterator[Fault]:
    """What is wrong with a draft's weights.

    Args:
        tensors: all that matter.
        wanted: what they should be.
    """
    found = {each.name: each for each in tensors}
    stops = "vLLM stops at start"
    prefixed = next((name for name in found if name.startswith(_ADDED) and _is_inner(name)), None)
    if prefixed is not None:
        yield Fault(
            kind=FaultKind.PREFIXED,
            message=f"{prefixed}, and vLLM puts {_ADDED} before the names itself: it stops at "
            "start",
            cure="Use a copy whose names do not begin so",
        )
        return
    for name, shape in wanted.shapes().items():
        tensor = found.get(name)
        if tensor is not None and not _fits(tensor, shape):
            yield Fault(
                kind=FaultKind.SHAPE,
                message=f"{name} of {_by(tensor.shape or ())}, and its config.json means "
                f"{_by(shape)}: {stops}",
            )
    yield from _lacking(found.values(), wanted)
    if not wanted.fc_norm and _any_named(found.values(), ".fc_norm."):
        yield Fault(
            kind=FaultKind.NORMS_UNREAD,
            message=f"fc_norm, and its config.json does not say fc_norm at its top: {stops}",
            cure='Use a copy whose config.json has what it was trained with ("fc_norm": true, and '
            '"norm_output": true for EAGLE 3.1)',
        )
    if wanted.table_unread and _any_named(found.values(), _TABLE):
        yield Fault(
            kind=FaultKind.TABLE_UNREAD,
            message=f"d2t, though it proposes all tokens of the target: {stops}, as it has no "
            "place for it",
            cure="Use a copy without that tensor, or another draft",
        )


def _lacking(tensors: Iterable[Tensor], wanted: WantedWeights) -> Iterator[Fault]:
    held = [*tensors]
    if wanted.hidden_states and not _any_named(held, ".fc."):
        yield Fault(
            kind=FaultKind.LACKS_FC,
            message="no fc, which joins the hidden states of the target: vLLM takes whatever its "
            "memory holds, without an error",
        )
    lent = [each for each in ("embed_tokens", "lm_head") if not _any_named(held, each)]
    width, theirs = wanted.hidden_size, wanted.embedding_width
    if lent and width and theirs and width != theirs:
        yield Fault(
            kind=FaultKind.LACKS_LENT,
            message=f"no {lent[0]}, and those of the target are {theirs} wide, the draft {width}: "
            "vLLM cannot lend them",
        )
    norms = len({each.name for each in held if ".fc_norm." in f".{each.name}"})
    lacks = [
        *(["fc_norm"] if wanted.fc_norm and norms < (wanted.hidden_states or 1) else []),
        *(["input_norm"] if wanted.norm_before_fc and not _any_named(held, ".input_norm.") else []),
    ]
    for name in lacks:
        some = "not all of " if name == "fc_norm" and norms else "no "
        yield Fault(
            kind=FaultKind.LACKS_NORMS,
            message=f"{some}{name}, which its config.json asks for: vLLM takes ones in their "
            "place, without an error",
            cure="Watch ACCEPT, or use the draft as it was trained: converting may drop them",
            certain=False,
        )
    full, reduced = wanted.vocab_size, wanted.draft_vocab_size
    if full and reduced and reduced < full and not _any_named(held, _TABLE):
        yield Fault(
            kind=FaultKind.LACKS_TABLE,
            message=f"no d2t, which says which {reduced} of {full} tokens it proposes: vLLM takes "
            "the first ones, without an error",
            cure="Watch ACCEPT, or use another draft",
            certain=False,
        )


def _is_inner(name: str) -> bool:
    """Whether vLLM looks for it within the model: the head and the tables are beside it."""
    return "lm_head" not in name and _TABLE not in name


def _fits(tensor: Tensor, shape: tuple[int | None, ...]) -> bool:
    """Whether it can be loaded; True also where that cannot be told."""
    if tensor.shape is None or not (tensor.dtype in _PLAIN or tensor.name == _TABLE):
        return True
    return len(tensor.shape) == len(shape) and all(
        theirs is None or ours == theirs for ours, theirs in zip(tensor.shape, shape, strict=True)
    )


def _by(shape: tuple[int | None, ...]) -> str:
    """As in `32000 by 4096`."""
    return " by ".join("any" if each is None else str(each) for each in shape) or "one number"
