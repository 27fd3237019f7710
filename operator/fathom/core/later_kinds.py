"""What a later Fathom has written, and names something in that this one has no name for. Pure.

A field that is not known is passed over by the models themselves. Here it is a value: a member of
an enum.
"""

from collections.abc import Callable
from typing import Final, TypeVar

from pydantic import JsonValue, ValidationError

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
