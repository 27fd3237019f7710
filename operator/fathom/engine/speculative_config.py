"""The value of --speculative-config, and which of its keys have a field of the spec."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from pydantic import JsonValue

from fathom.api.foreign_json import (
    BeyondBoundsError,
    UnreadableJsonError,
    json_or_text,
    parsed_json,
)
from fathom.api.problem import Problem
from fathom.api.spec import SpeculativeDeploymentSpec
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


def draft_option_problems(spec: SpeculativeDeploymentSpec) -> tuple[Problem, ...]:
    """Keys of `draft.options` that have a field of their own, or make a measurement of nothing.

    And values that are not read.
    """
    problems = [
        Problem(
            f"spec.draft.options.{key.name}", f"this has a field: set spec.{key.field} instead."
        )
        for key in KEYS
        if key.name in spec.draft.options
    ]
    for key, text in spec.draft.options.items():
        try:
            parsed_json(text)
        except BeyondBoundsError as error:
            problems.append(Problem(f"spec.draft.options.{key}", f"{error}: write less of it."))
        except UnreadableJsonError:
            continue
    if spec.draft.options.get("rejection_sample_method") == "synthetic" and spec.tunable:
        problems.append(
            Problem(
                "spec.draft.options.rejection_sample_method",
                "with synthetic acceptance what is measured says nothing about the draft: it is "
                "for benchmarks, so use tuning mode Static.",
            )
        )
    return tuple(problems)
