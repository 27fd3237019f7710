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
from fathom.engine.capability import live_depth
from fathom.engine.depth_set import named_depths
from fathom.engine.startup_schedule import startup_schedule
from fathom.engine.stated_args import max_batch


@dataclass(frozen=True, slots=True)
class Key:
    """One key that the operator writes."""

    name: str
    field: str
    """The field below `spec` that it is made from."""
    value: Callable[[SpeculativeDeploymentSpec], JsonValue]
    """None: it is left out."""


def _depth(spec: SpeculativeDeploymentSpec) -> JsonValue:
    speculation = spec.speculation
    return speculation.effective_max_tokens if live_depth(spec) else speculation.tokens


def _ranges(spec: SpeculativeDeploymentSpec) -> JsonValue:
    if not live_depth(spec):
        return None
    schedule = startup_schedule(named_depths(spec), max_batch(spec))
    return [[part.first, part.last, part.depth] for part in schedule]


KEYS: Final = (
    Key("model", "draft.id", lambda spec: spec.draft.id or None),
    Key("revision", "draft.revision", lambda spec: spec.draft.revision or None),
    Key("method", "draft.method", lambda spec: spec.draft.method.value),
    Key("num_speculative_tokens", "speculation.tokens", _depth),
    Key(
        "draft_tensor_parallel_size",
        "draft.tensorParallelSize",
        lambda spec: spec.draft.tensor_parallel_size,
    ),
    Key(
        "enable_adaptive_verification",
        "speculation.adaptiveVerification",
        lambda spec: spec.verifies_adaptively or None,
    ),
    Key("num_speculative_tokens_per_batch_size", "speculation.tuning", _ranges),
)
"""In the order in which they are written."""


def speculative_config(spec: SpeculativeDeploymentSpec) -> dict[str, JsonValue]:
    """The value of --speculative-config."""
    # `4` and `true` are no words.
    config = {key: json_or_text(text) for key, text in spec.draft.options.items()}
    ours = {key.name: key.value(spec) for key in KEYS}
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
