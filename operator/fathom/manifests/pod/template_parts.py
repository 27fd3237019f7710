"""Parts of a pod template, as far as they are there and what they should be."""

from collections.abc import Mapping, Sequence

from pydantic import JsonValue

Part = Mapping[str, JsonValue]


def part(template: JsonValue | Part, *path: str) -> Part:
    """The object at a path; empty: there is none."""
    found: JsonValue | Part = template
    for key in path:
        found = found.get(key) if isinstance(found, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def parts(template: JsonValue | Part, *path: str) -> tuple[Part, ...]:
    """The objects in the list at a path; empty: there is none."""
    *parents, last = path
    found = part(template, *parents).get(last)
    return tuple(each for each in _members(found) if isinstance(each, Mapping))


def texts(template: JsonValue | Part, *path: str) -> tuple[str, ...]:
    """The texts in the list at a path; empty: there is none."""
    *parents, last = path
    found = part(template, *parents).get(last)
    return tuple(each for each in _members(found) if isinstance(each, str))


def by(key: str, items: Sequence[Part]) -> Mapping[str, Part]:
    """Objects by what they hold at a key, as text."""
    return {str(item[key]): item for item in items if key in item}


def _members(value: JsonValue) -> Sequence[JsonValue]:
    return value if isinstance(value, list) else ()
