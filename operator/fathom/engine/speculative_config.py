"""The value of --speculative-config, and which of its keys have a field of the spec."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from pydantic import JsonValue

from fathom.api.foreign_json import (
    json_or_text,
)
from fathom.engine.profile import EngineProfile


@dataclass(frozen=True, slots=True)
class Key:
    """One key that the operator writes."""

    name: str
    field: str
    """The field below `spec` that it is made from."""
    value: Callable[[EngineProfile], JsonValue]
    """None: it is left out."""


def _ranges(engine: EngineProfile) -> JsonValue:
    schedule = engine.schedule if engine.live else ()
    return [[part.first, part.last, part.depth] for part in schedule] or None


KEYS: Final = (
    Key("model", "draft.id", lambda engine: engine.spec.draft.id or None),
    Key("revision", "draft.revision", lambda engine: engine.spec.draft.revision or None),
    Key("method", "draft.method", lambda engine: engine.spec.draft.method.value),
    Key("num_speculative_tokens", "speculation.tokens", lambda engine: engine.deepest),
    Key(
        "draft_tensor_parallel_size",
        "draft.tensorParallelSize",
        lambda engine: engine.spec.draft.tensor_parallel_size,
    ),
    Key(
        "enable_adaptive_verification",
        "speculation.adaptiveVerification",
        lambda engine: engine.spec.verifies_adaptively or None,
    ),
    Key("num_speculative_tokens_per_batch_size", "speculation.tuning", _ranges),
)
"""In the order in which they are written."""


def speculative_config(engine: EngineProfile) -> dict[str, JsonValue]:
    """The value of --speculative-config."""
    # `4` and `true` are no words.
    config = {key: json_or_text(text) for key, text in engine.spec.draft.options.items()}
    ours = {key.name: key.value(engine) for key in KEYS}
    return config | {name: value for name, value in ours.items() if value is not None}
