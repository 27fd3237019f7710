"""JSON that others wrote, read within bounds: what nests too deep would end whoever walks it."""

import json
import re
from typing import Final

from pydantic import JsonValue

DEEPEST: Final = 100
"""Levels of lists and objects; whoever walks what was read may count on it. A Pod has a dozen, and
so have config.json files."""
_MOST_DIGITS: Final = 20
"""Digits of a whole number: what fits into 64 bits, with its sign. More overflows a float sooner or
later, and can itself not be printed."""


class UnreadableJsonError(ValueError):
    """It is no JSON, or none within the bounds; the message says which, as half a sentence."""


class BeyondBoundsError(UnreadableJsonError):
    """It may be JSON, and is not read anyway."""


def parsed_json(text: str | bytes) -> JsonValue:
    """The value that a text stands for.

    Raises:
        UnreadableJsonError: it cannot be read. Never anything else.
    """
    try:
        value: JsonValue = json.loads(text, parse_int=_whole_number)
    except RecursionError:
        raise BeyondBoundsError(_TOO_DEEP) from None
    except BeyondBoundsError:
        raise
    except json.JSONDecodeError as error:
        # How deep a decoder goes before it gives up depends on Python and on the process.
        if _opens_too_deep(error.doc[: error.pos]):
            raise BeyondBoundsError(_TOO_DEEP) from None
        raise UnreadableJsonError("it is not JSON") from error
    except ValueError as error:
        raise UnreadableJsonError("it is not JSON") from error
    if nests_too_deep(value):
        raise BeyondBoundsError(_TOO_DEEP)
    return value


def json_or_text(text: str) -> JsonValue:
    """The value that a text stands for; itself, where it cannot be read."""
    try:
        return parsed_json(text)
    except UnreadableJsonError:
        return text


def is_true(text: str) -> bool:
    """Whether a text stands for something that counts as true; one that cannot be read does not."""
    try:
        return bool(text) and bool(parsed_json(text))  # empty, as most are: no error to make
    except UnreadableJsonError:
        return False


def nests_too_deep(value: JsonValue) -> bool:
    """Whether lists and objects stand in each other beyond `DEEPEST`. Walks without recursion."""
    level = [value]
    for _ in range(DEEPEST):
        level = [inner for each in level for inner in _inside(each)]
        if not level:
            return False
    return any(isinstance(each, dict | list) for each in level)


_TOO_DEEP: Final = f"it nests deeper than {DEEPEST} levels"
_STRING_OR_BRACKET: Final = re.compile(r'"(?:[^"\\]|\\.)*"?|[\[\]{}]', re.DOTALL)


def _opens_too_deep(beginning: str) -> bool:
    """The same of JSON that ends anywhere."""
    level = 0
    for found in _STRING_OR_BRACKET.finditer(beginning):
        level += {"[": 1, "{": 1, "]": -1, "}": -1}.get(found[0], 0)
        if level > DEEPEST:
            return True
    return False


def _inside(value: JsonValue) -> list[JsonValue]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []


def _whole_number(digits: str) -> int:
    if len(digits) > _MOST_DIGITS:
        raise BeyondBoundsError(f"it holds a number of {len(digits)} digits")
    return int(digits)
