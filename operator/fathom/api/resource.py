"""The whole resource, and how it is read: a manifest becomes a model, or a list of problems."""

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError
from pydantic_core import ErrorDetails

from fathom.api.names import API_VERSION, KIND
from fathom.api.problem import Problem
from fathom.api.rules import violations
from fathom.api.spec import SpeculativeDeploymentSpec

NAME_PATTERN: Final = r"^[a-z]([-a-z0-9]*[a-z0-9])?$"
"""Of a Service, which is called like the resource."""
LONGEST_NAME: Final = 45
"""Children append suffixes, and a Service's name has 63 characters at most."""
_NAMESPACE_PATTERN: Final = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$"
MAX_NESTING: Final = 100
"""Of objects and lists in each other; what walks a spec may count on it. A Pod has a dozen."""


class Metadata(BaseModel):
    """What the operator needs of ObjectMeta; the rest passes."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    name: Annotated[str, Field(pattern=NAME_PATTERN, max_length=LONGEST_NAME)]
    namespace: Annotated[str, Field(pattern=_NAMESPACE_PATTERN, max_length=63)] = ""
    """Empty: whoever applies the manifest decides. In a cluster it is always there."""
    uid: str = ""
    generation: int = 0
    labels: Mapping[str, str] | None = None
    annotations: Mapping[str, str] | None = None


class _Manifest(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    api_version: Annotated[Literal["fathom.dev/v1alpha1"], Field(alias="apiVersion")]
    kind: Literal["SpeculativeDeployment"]
    metadata: Metadata
    spec: SpeculativeDeploymentSpec
    status: Mapping[str, JsonValue] = Field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SpeculativeDeployment:
    """One resource as its user wrote it, valid."""

    metadata: Metadata
    spec: SpeculativeDeploymentSpec


def is_speculative_deployment(manifest: Mapping[str, JsonValue]) -> bool:
    """Whether a document of a manifest file is meant to be one of ours.

    By kind or by group: if the other one is misspelt, `parse` says so.
    """
    group = str(manifest.get("apiVersion", "")).split("/", 1)[0]
    return manifest.get("kind") == KIND or group == API_VERSION.split("/", 1)[0]


def parse(
    manifest: Mapping[str, JsonValue],
) -> SpeculativeDeployment | tuple[Problem, ...]:
    """Read a manifest; every problem found is returned, none raised."""
    if (field := _nested_too_deeply(manifest.get("spec"))) is not None:
        return (
            Problem(f"spec.{field}", f"nested more than {MAX_NESTING} deep: no pod template is."),
        )
    try:
        parsed = _Manifest.model_validate(manifest)
    except ValidationError as error:
        return tuple(_problem(details) for details in error.errors())
    problems = violations(parsed.spec)
    return problems or SpeculativeDeployment(parsed.metadata, parsed.spec)


def _nested_too_deeply(spec: JsonValue) -> str | None:
    """The field of a spec below which it is; None: none is. No recursion, which has an end."""
    level = list(spec.items()) if isinstance(spec, dict) else []
    for _ in range(1, MAX_NESTING):
        level = [(field, child) for field, value in level for child in _children(value)]
    return level[0][0] if level else None


def _children(value: JsonValue) -> Iterable[JsonValue]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _problem(details: ErrorDetails) -> Problem:
    location = details["loc"]
    path = _path(location)
    match details["type"]:
        case "extra_forbidden":
            return Problem(path, _unknown_field(location))
        case "missing":
            return Problem(path, "required, but missing: set it.")
        case "enum" | "literal_error":
            expected = details.get("ctx", {}).get("expected", "")
            return Problem(path, f"{details['input']!r} is not one of {expected}.")
        case "string_type" if isinstance(details["input"], bool | int | float):
            return Problem(path, f"{_shown(details['input'])} is not text: put it in quotes.")
        case "string_pattern_mismatch" if path in _NOT_A_NAME:
            return Problem(path, _NOT_A_NAME[path])
        case _:
            message = details["msg"][:1].lower() + details["msg"][1:]
            found = details["input"]
            shown = f" (found {_shown(found)})" if isinstance(found, str | int | float) else ""
            return Problem(path, f"{message}{shown}.")


def _shown(value: str | float) -> str:
    """As it stands in the manifest."""
    return str(value).lower() if isinstance(value, bool) else repr(value)


_NOT_A_NAME: Final = {
    "metadata.name": "this is no name: use lower-case letters, digits and -, and begin with a "
    "letter.",
    "metadata.namespace": "this is no name of a namespace: use lower-case letters, digits and -.",
}


def _path(location: Sequence[str | int]) -> str:
    path = ""
    for part in location:
        path += f"[{part}]" if isinstance(part, int) else f".{part}"
    return path.removeprefix(".")


def _unknown_field(location: Sequence[str | int]) -> str:
    name = str(location[-1])
    known = _known_fields(location[:-1])
    close = difflib.get_close_matches(name, known, n=1)
    hint = f" Did you mean {close[0]}?" if close else " Remove it, or see `kubectl explain sd`."
    return f"unknown field.{hint}"


def _known_fields(location: Sequence[str | int]) -> list[str]:
    """Field names at a place of the manifest, as the user writes them."""
    model: type[BaseModel] | None = _Manifest
    for part in location:
        if model is None or isinstance(part, int):
            continue
        model = next(
            (
                _model_in(field.annotation)
                for name, field in model.model_fields.items()
                if part in {name, field.alias}
            ),
            None,
        )
    if model is None:
        return []
    return [field.alias or name for name, field in model.model_fields.items()]


def _model_in(annotation: object) -> type[BaseModel] | None:
    """The model inside `Model`, `Model | None`, `tuple[Model, ...]` or `Annotated[...]`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for argument in getattr(annotation, "__args__", ()):
        if (found := _model_in(argument)) is not None:
            return found
    return None
