"""What an intake says: why it refuses a draft, or what of its config.json it reports. Pure.

A trainer is not trusted, and what it writes may hold what nobody should read. So a refusal is a
code and numbers, for which the sentences are here, and what is reported of a config.json is
numbers, flags, and names that the operator gave.
"""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import Any, Final

from fathom_intake.model_weights import FaultKind, WantedWeights

SCHEMA: Final = 1
LONGEST_MESSAGE: Final = 4096
"""Bytes that Kubernetes keeps of a container's termination message."""

_NUMBERS: Final = frozenset(
    {
        *("hidden_size", "target_hidden_size", "num_attention_heads", "num_key_value_heads"),
        *("head_dim", "num_hidden_layers", "vocab_size", "draft_vocab_size", "kv_lora_rank"),
        *("max_position_embeddings", "qk_rope_head_dim", "num_nextn_predict_layers"),
        *("mtp_num_hidden_layers", "num_aux_hidden_states", "num_aux_layers"),
        *("num_target_layers", "num_experts", "moe_num_experts", "n_routed_experts"),
        "num_local_experts",
    }
)
_FLAGS: Final = frozenset(
    {
        *("fc_norm", "norm_output", "norm_before_fc", "norm_before_residual"),
        "use_aux_hidden_state",
    }
)
_LAYERS: Final = "eagle_aux_hidden_state_layer_ids"
_NAMES: Final = frozenset({"model_type", "speculators_model_type", "quant_method"})
_ARCHITECTURES: Final = "architectures"
_STRETCHED: Final = "rope_scaling"
_PLACES: Final = frozenset(
    {
        *("eagle_config", "text_config", "transformer_layer_config"),
        *("speculators_config", "verifier", "quantization_config"),
    }
)
"""What of a config.json `fathom.model_facts.ModelConfig` is made of."""
_CODE: Final = "auto_map"
"""Names classes that transformers fetches and runs, in this repository or in another one."""
_MOST_LAYERS: Final = 64
_MOST_ARCHITECTURES: Final = 8
_LARGEST: Final = 1 << 53
_DEEPEST: Final = 3
"""Levels of objects in which something is reported: `speculators_config.verifier` is the second."""


class Code(Enum):
    """Why a draft is not taken, as the message of an intake names it."""

    NO_RESULT = "noResult"
    BAD_RESULT = "badResult"
    NOT_A_COMMIT = "notACommit"
    BAD_FOLDER = "badFolder"
    TOO_MANY_FILES = "tooManyFiles"
    NOT_A_FILE = "notAFile"
    UNREADABLE = "unreadable"
    TOO_LARGE = "tooLarge"
    CHANGED = "changed"
    NO_WEIGHTS = "noWeights"
    BAD_CONFIG = "badConfig"
    UNKNOWN_CLASS = "unknownClass"
    BAD_INDEX = "badIndex"
    BAD_HEADER = "badHeader"
    BAD_TYPE = "badType"
    BAD_NAME = "badName"
    OTHER_TARGET = "otherTarget"
    BAD_WEIGHTS = "badWeights"
    NOT_FINITE = "notFinite"
    BAD_TABLE = "badTable"
    STORE_FULL = "storeFull"
    STORE_CLOSED = "storeClosed"
    STORE_CHANGED = "storeChanged"
    STORAGE_FAILED = "storageFailed"
    BROKEN = "broken"


_TRAINER: Final = "Correct what the trainer writes, and run it again"
_RESULT: Final = '{{"schema": 1, "draft": "draft"}}'
_SENTENCES: Final[Mapping[Code, str]] = MappingProxyType(
    {
        Code.NO_RESULT: "The output has no result.json, so the training did not end well: read the "
        "log of its Job.",
        Code.BAD_RESULT: f"result.json in the output is not {_RESULT}, nor one that names id and "
        f"revision of a repository as hub: {_TRAINER.lower()}.",
        Code.NOT_A_COMMIT: "result.json names a repository with a revision that is not a commit of "
        "40 hex digits, so that it may mean other files tomorrow: let the trainer write the commit "
        "that its upload returns.",
        Code.BAD_FOLDER: "What result.json names as draft is not a folder of that name in the "
        "output: it may be no path and no link. Let the trainer write into a folder next to "
        "result.json.",
        Code.TOO_MANY_FILES: "The output's folder has more than {most} entries that are wanted, or "
        "more than can be counted: let the trainer copy config.json and the weights alone into it.",
        Code.NOT_A_FILE: "A config.json, an index or a file of weights in the output is a link, a "
        "pipe, a device or a folder: let the trainer copy the file itself (cp -L).",
        Code.UNREADABLE: "A file in the output may not be read by the user that the intake runs "
        "as: trainers write weights for their own user alone (mode 0600). End the training with "
        "chmod -R a+rX on its output, run it as spec.engine.user, or set securityContext.fsGroup "
        "in its template, where the storage knows it.",
        Code.TOO_LARGE: "The draft's files have {found} of at most {most} bytes: let the trainer "
        "write one checkpoint and no holes, or raise the limit.",
        Code.CHANGED: "A file in the output changed while it was copied: let the trainer write "
        "result.json last, and nothing after it.",
        Code.NO_WEIGHTS: "The output has no weights in the safetensors format, or none in them. "
        "Pickles are never taken: let the trainer save as safetensors.",
        Code.BAD_CONFIG: "config.json in the output is missing, larger than 1 MiB, no JSON object, "
        "or has a size, a flag or a list of layers of another kind than vLLM reads: "
        f"{_TRAINER.lower()}.",
        Code.UNKNOWN_CLASS: "config.json in the output names no class of vLLM's that loads such a "
        "draft, and code that a trainer brings is never run: train a draft of a class that vLLM "
        "has.",
        Code.BAD_INDEX: "The index of the weights cannot be read, or does not name the files next "
        "to it and what is in them: let the trainer save all files together.",
        Code.BAD_HEADER: "A file of weights is cut off, or what its header says of the place of "
        "its tensors is not so: the copy or the disk may be broken. Run the training again.",
        Code.BAD_TYPE: "A tensor has a type of numbers that weights of a draft do not have: let "
        "the trainer save BF16.",
        Code.BAD_NAME: "A tensor has a name that no draft has, or two files have the same: "
        f"{_TRAINER.lower()}.",
        Code.OTHER_TARGET: "The draft was trained for another model: it has {found} where the "
        "target has {most}. Train it on the hidden states of this target.",
        Code.NOT_FINITE: "The weights hold a NaN or an infinite number, as of a training that "
        "diverged: train again with a smaller rate, or hand back an earlier checkpoint.",
        Code.BAD_TABLE: "The table from draft tokens to target tokens (d2t) is no list of whole "
        "numbers, or points beyond the target's {most} tokens: build it from the target's own "
        "vocabulary.",
        Code.STORE_FULL: "The claim has no space for the draft: enlarge it, or remove drafts that "
        "nothing uses.",
        Code.STORE_CLOSED: "The user that the intake runs as may not write to the claim: let it, "
        "for example by securityContext.fsGroup in spec.podTemplate.",
        Code.STORE_CHANGED: "The claim has a folder for exactly this draft, and other files are in "
        "it than were stored: something wrote to it. Remove that folder.",
        Code.STORAGE_FAILED: "The storage failed (error number {found}): run the intake again, and "
        "ask whoever runs the storage.",
        Code.BROKEN: "The intake itself failed, which is a fault of Fathom's: its log says where. "
        "Please report it.",
    }
)
_FAULTS: Final[Mapping[FaultKind, str]] = MappingProxyType(
    {
        FaultKind.SHAPE: "a tensor of another shape than config.json means",
        FaultKind.PREFIXED: "names that begin with model., which vLLM puts before them itself",
        FaultKind.LACKS_FC: "no fc, which joins the hidden states",
        FaultKind.LACKS_LENT: "no embeddings or no head, and the target's have another width",
        FaultKind.LACKS_NORMS: "no norms, which config.json asks for",
        FaultKind.LACKS_TABLE: "no d2t, and fewer tokens than the target has",
        FaultKind.NORMS_UNREAD: "fc_norm, and config.json does not say fc_norm at its top",
        FaultKind.TABLE_UNREAD: "d2t, for which this vLLM has no place where all tokens are "
        "proposed",
    }
)


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a draft was not taken, in nothing but what is known beforehand, and numbers."""

    code: Code
    numbers: Mapping[str, int] = field(default_factory=dict)
    fault: FaultKind | None = None
    """With `Code.BAD_WEIGHTS`: what does not fit."""

    @property
    def sentence(self) -> str:
        """The cause, where it is, and what to do."""
        if self.code is Code.BAD_WEIGHTS:
            found = _FAULTS.get(self.fault or FaultKind.SHAPE)
            return f"The weights do not fit config.json: they hold {found}. {_TRAINER}."
        known = {"found": "an unknown number", "most": "the allowed"}
        return _SENTENCES[self.code].format_map({**known, **self.numbers})

    def to_json(self) -> str:
        """The message of the pod."""
        said: dict[str, Any] = {"schema": SCHEMA, "refused": self.code.value, **self.numbers}
        return _compact(said if self.fault is None else {**said, "fault": self.fault.value})

    @classmethod
    def from_json(cls, text: str) -> "Refusal | None":
        """From such a message; None: it is none."""
        try:
            said = json.loads(text)
            fault = FaultKind(said["fault"]) if "fault" in said else None
            found = {each: said[each] for each in ("found", "most") if type(said.get(each)) is int}
            return cls(Code(said["refused"]), found, fault)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return None


class RefusedError(Exception):
    """A draft is not taken."""

    def __init__(self, code: Code, fault: FaultKind | None = None, **numbers: int) -> None:
        super().__init__(code.value)
        self.refusal = Refusal(code, numbers, fault)


def parsed_object(text: bytes, code: Code) -> dict[str, Any]:
    """The JSON object that a text is, each key once.

    Raises:
        RefusedError: it is none, with this code.
    """
    try:
        value = json.loads(text.decode(), object_pairs_hook=_each_once)
    except (ValueError, RecursionError):
        raise RefusedError(code) from None
    if not isinstance(value, dict):
        raise RefusedError(code)
    return value


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """What readers make of a key that is there twice differs."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError
    return found


def without_code(document: Any) -> Any:
    """A config.json that names no code, wherever it did. Every trainer writes such names."""
    if isinstance(document, dict):
        return {key: without_code(value) for key, value in document.items() if key != _CODE}
    if isinstance(document, list):
        return [without_code(each) for each in document]
    return document


def facts_of(
    document: Mapping[str, Any], known: Collection[str], deepest: int = _DEEPEST
) -> dict[str, Any]:
    """What preflight asks of a config.json, under the same keys.

    Args:
        document: that.
        known: names of classes, types and methods that the operator knows. No other is reported.
        deepest: levels of objects to read.

    Raises:
        RefusedError: one of them is of another kind than vLLM reads.
    """
    found: dict[str, Any] = {}
    for key, value in document.items():
        if value is None:
            continue
        if key in _NUMBERS:
            found[key] = _accepted(value, type(value) is int and 0 <= value <= _LARGEST)
        elif key in _FLAGS:
            found[key] = _accepted(value, isinstance(value, bool))
        elif key == _LAYERS:
            found[key] = _accepted(value, _is_layers(value))
        elif key in _NAMES and isinstance(value, str) and value in known:
            found[key] = value
        elif key == _ARCHITECTURES and isinstance(value, list):
            texts = (each for each in value[:_MOST_ARCHITECTURES] if isinstance(each, str))
            found[key] = [each for each in texts if each in known]
        elif key in _PLACES and isinstance(value, dict) and deepest > 1:
            found[key] = facts_of(value, known, deepest - 1)
    if document.get(_STRETCHED) or "factor" in _object(document.get("rope_parameters")):
        found[_STRETCHED] = True
    return found


def _accepted(value: Any, fits: bool) -> Any:  # noqa: FBT001
    if not fits:
        raise RefusedError(Code.BAD_CONFIG)
    return value


def _is_layers(value: Any) -> bool:
    return (
        isinstance(value, list)
        and len(value) <= _MOST_LAYERS
        and all(type(each) is int and 0 <= each <= _LARGEST for each in value)
    )


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What the model that a draft is for is, and which drafts its engine loads."""

    hidden_size: int | None = None
    """None: not known, or not the width of its hidden states."""
    vocab_size: int | None = None
    eagle3: bool = False
    """Whether the draft is to be one of EAGLE 3."""
    table_unread: bool = False
    """Whether its vLLM has no place for `d2t` where all tokens are proposed."""
    known: frozenset[str] = frozenset()
    """Names that a config.json may have: those of classes, of types and of methods."""


def wanted_of(facts: Mapping[str, Any], target: Target) -> WantedWeights:
    """What a draft's weights should be.

    How many hidden states its `fc` joins is a rule of vLLM's release: preflight knows it, and is
    given the shapes.

    Raises:
        RefusedError: vLLM has no class for it, or it is of another target.
    """
    layers = {**facts, **_object(facts.get("text_config"))}
    layers.update(_object(facts.get("transformer_layer_config")))
    if not facts.get("speculators_model_type") and not facts.get(_ARCHITECTURES):
        raise RefusedError(Code.UNKNOWN_CLASS)
    hidden, vocabulary = layers.get("hidden_size"), layers.get("vocab_size")
    reads = facts.get("target_hidden_size") or hidden
    proposed = facts.get("draft_vocab_size") or vocabulary
    if target.eagle3 and reads and target.hidden_size and reads != target.hidden_size:
        raise RefusedError(Code.OTHER_TARGET, found=reads, most=target.hidden_size)
    if target.eagle3 and proposed and target.vocab_size and proposed > target.vocab_size:
        raise RefusedError(Code.OTHER_TARGET, found=proposed, most=target.vocab_size)
    eagle = _object((layers if facts.get("speculators_model_type") else facts).get("eagle_config"))
    states = 0 if eagle.get("use_aux_hidden_state") is False else None
    return WantedWeights(
        hidden_size=hidden,
        target_hidden_size=reads,
        hidden_states=states,
        vocab_size=vocabulary,
        draft_vocab_size=proposed,
        fc_norm=bool(facts.get("fc_norm")),
        embedding_width=target.hidden_size,
        table_unread=target.table_unread and proposed is not None and proposed == target.vocab_size,
    )


def _compact(message: Mapping[str, Any]) -> str:
    return json.dumps(message, separators=(",", ":"))
