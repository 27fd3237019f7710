"""What a newer release has written, and this one has no name for. Pure.

A field that is not known is passed over by the models themselves. Here it is a value: a member of
an enum.

An API server keeps nothing that its own CRD does not know. So what is left of that in a resource of
a cluster is of a CRD of another release: see docs/design/0031-crds-of-other-releases.md.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

from pydantic import BaseModel, JsonValue, ValidationError

from fathom.api.base import models_of_fields

_Read = TypeVar("_Read")
_Path = tuple[str | int, ...]
_MOST_ERRORS: Final = 1000
"""Beyond which it is junk: to list all that is wrong with it takes longer than to find it."""
_UNNAMED: Final = "enum"
"""Pydantic's type of the error: none of the enum's members."""


def read_known(
    document: JsonValue, read: Callable[[JsonValue], _Read]
) -> tuple[_Read | None, bool]:
    """What can be read of a document, and whether that is all of it.

    What is of a kind without a name here is left out: of a list the entry, else the field of the
    document in which it stands. None: something else is wrong, or it cannot do without that.

    Args:
        document: JSON.
        read: raises pydantic's ValidationError where it cannot.
    """
    try:
        return read(document), True
    except ValidationError as error:
        unnamed = _unnamed(document, error)
    if not unnamed:
        return None, False
    try:
        return read(_without(document, unnamed, ())), False
    except ValidationError:
        return None, False


def _unnamed(document: JsonValue, error: ValidationError) -> frozenset[_Path]:
    """Where something stands of a kind without a name; empty: more than that is wrong."""
    if error.error_count() > _MOST_ERRORS:
        return frozenset()
    found = error.errors(include_url=False)
    if any(each["type"] != _UNNAMED or not isinstance(each["input"], str) for each in found):
        return frozenset()
    return frozenset(_part(document, each["loc"]) for each in found)


def _part(document: JsonValue, place: _Path) -> _Path:
    """The innermost entry of a list on the way to a place; else the first field."""
    part, inner = place[:1], document
    for depth, step in enumerate(place):
        if isinstance(inner, list) and isinstance(step, int):
            part, inner = place[: depth + 1], inner[step]
        elif isinstance(inner, dict) and step in inner:
            inner = inner[str(step)]
        else:  # of the model, and not of the document
            break
    return part


def _without(value: JsonValue, gone: frozenset[_Path], at: _Path) -> JsonValue:
    if isinstance(value, dict):
        kept = {key: each for key, each in value.items() if (*at, key) not in gone}
        return {key: _without(each, gone, (*at, key)) for key, each in kept.items()}
    if isinstance(value, list):
        return [
            _without(each, gone, (*at, index))
            for index, each in enumerate(value)
            if (*at, index) not in gone
        ]
    return value


@dataclass(frozen=True, slots=True)
class Pruned:
    known: dict[str, JsonValue]
    unknown: tuple[str, ...]
    """Paths of what was left out, such as `spec.rollout.pace`."""


def pruned(model: type[BaseModel], document: Mapping[str, JsonValue]) -> Pruned:
    """The document with the fields of a model that refuses others."""
    unknown: list[str] = []
    return Pruned(_known(model, document, "", unknown), tuple(unknown))


def _known(
    model: type[BaseModel], document: Mapping[str, JsonValue], place: str, unknown: list[str]
) -> dict[str, JsonValue]:
    fields = models_of_fields(model)
    known: dict[str, JsonValue] = {}
    for name, value in document.items():
        path = f"{place}{name}"
        if name in fields:
            known[name] = _value(fields[name], value, path, unknown)
        else:
            unknown.append(path)
    return known


def _value(
    model: type[BaseModel] | None, value: JsonValue, path: str, unknown: list[str]
) -> JsonValue:
    if model is None or model.model_config.get("extra") != "forbid":
        return value
    if isinstance(value, list):
        return [
            _known(model, item, f"{path}[{index}].", unknown) if isinstance(item, dict) else item
            for index, item in enumerate(value)
        ]
    return _known(model, value, f"{path}.", unknown) if isinstance(value, dict) else value
