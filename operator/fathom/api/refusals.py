"""What a manifest's schema refuses, in words that its writer can follow: never a library's own."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, get_args

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from fathom.api.base import Location, model_at, models_of_fields, names_of, path_of, paths_by_name
from fathom.api.names import NAMES, SHORT_NAMES, TUNER_KIND, TUNER_SHORT_NAMES, refused_name
from fathom.api.pod_fields import OBJECT_KEY, OBJECT_NAME
from fathom.api.problem import Problem
from fathom.api.suggestions import VERY_NEAR, Familiar, every_row, familiar, nearest, plain

_WANTED: Final[Mapping[str, str]] = {
    "model_type": "an object",
    "dict_type": "an object",
    "mapping_type": "an object",
    "tuple_type": "a list",
    "string_type": "text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
}
"""By pydantic's name of an error: what belongs where it was found."""
_SHOWN: Final = 60
"""Characters of a value that are repeated."""
_QUOTED: Final = re.compile(r"'([^']*)'")
_ONE_OF: Final = re.compile(r"\^\(([A-Za-z|]+)\)\$")
"""A pattern that is a list of values."""
_NO_REFERENCE: Final[Mapping[str, str]] = {
    OBJECT_NAME: "this is no name of a Secret or ConfigMap: use lower-case letters, digits, - and "
    "., and begin and end with a letter or digit.",
    OBJECT_KEY: "this is no key of a Secret or ConfigMap: use letters, digits, -, _ and .",
}
"""By pattern. What is written there is not repeated: it may be the secret itself."""
_ITEMS: Final = "each item on a line of its own, after `- `"
_LINES: Final = "lines like `name: value` below it"
_SCALARS: Final = {
    "a whole number": re.compile(r"-?[0-9]{1,18}"),
    "a number": re.compile(r"-?[0-9]{1,18}(\.[0-9]{1,18})?"),
    "true or false": re.compile("true|false"),
}
"""What would be of a type if it were not in quotes."""
_OF_TEXT: Final = ("string_pattern_mismatch", "string_too_long")


def unknown_field(root: type[BaseModel], location: Location) -> str:
    """The sentence that refuses it.

    Args:
        root: the model of the whole manifest.
        location: of the field.
    """
    return f"unknown field{_advice(root, str(location[-1]), location[:-1])}"


def _advice(root: type[BaseModel], name: str, place: Location) -> str:
    here = names_of(model_at(root, place))
    known = familiar(name)
    rows = [(each, row) for each, row in known if _holds(root, row, each)]
    meant = [row.path(spelling).rsplit(".", 1)[-1] for spelling, row in rows]
    if same := nearest(name, here, 1) or next((each for each in meant if each in here), ""):
        return f". Did you mean {same}?"
    for spelling, row in rows:
        if not row.beside:
            return f": {row.advice(spelling)}."
    elsewhere = paths_by_name(root).get(nearest(name, paths_by_name(root), 1), ())
    if near := _begun(name, here) or nearest(name, here):
        return f". Did you mean {', or '.join((near, *elsewhere))}?"
    if elsewhere:
        return f": set {' or '.join(elsewhere)} instead."
    # What is a field of the other kind of resource is no misspelt one of this.
    misspelt = "" if known and not rows else _misspelt(root, name)
    return misspelt or f": remove it, or see `kubectl explain {_explained(root, place)}`."


def _holds(root: type[BaseModel], row: Familiar, name: str) -> bool:
    """Whether a row's advice can be followed in this kind: it has what the row names.

    A row that names no field is of a kind that has pods of its own, and so an engine.
    """
    model: type[BaseModel] | None = root
    for part in (row.path(name) or "spec.engine").split("."):
        if model is None:
            return True
        fields = models_of_fields(model)
        if part not in fields:
            return False
        model = fields[part]
    return True


def _begun(name: str, names: Sequence[str]) -> str:
    """The only one of the names that begins so; empty: none does, or several do."""
    found = [each for each in names if plain(each).startswith(plain(name))]
    return found[0] if len(found) == 1 else ""


def _misspelt(root: type[BaseModel], name: str) -> str:
    """The advice for what is nearly a name that would go elsewhere; empty: it is near none."""
    by_name = {
        each: row
        for row in every_row()
        for each in row.names
        if not row.beside and _holds(root, row, each)
    }
    ours = {
        each: Familiar(names=(each,), field=paths[0]) for each, paths in paths_by_name(root).items()
    }
    rows = {**by_name, **ours}
    found = nearest(name, rows, VERY_NEAR)
    return f": {rows[found].advice(found)}." if found else ""


def _explained(root: type[BaseModel], place: Location) -> str:
    """A place as `kubectl explain` takes it: without the numbers of items."""
    kind = root.model_fields.get("kind")
    tuner = kind is not None and TUNER_KIND in get_args(kind.annotation)
    short = TUNER_SHORT_NAMES[-1] if tuner else SHORT_NAMES[-1]
    return path_of([short, *(part for part in place if isinstance(part, str))])


def refusals(root: type[BaseModel], errors: Sequence[ErrorDetails]) -> tuple[Problem, ...]:
    """One problem for each thing that is wrong.

    Args:
        root: the model of the whole manifest.
        errors: of its validation.
    """
    return tuple(
        Problem(field=path_of(each["loc"]), message=_sentence(root, each))
        for each in errors
        # A list of which all items are refused counts as empty, too.
        if not (each["type"] == "too_short" and each["input"])
    )


def _sentence(root: type[BaseModel], details: ErrorDetails) -> str:
    location, kind, found = details["loc"], details["type"], details["input"]
    limits = details.get("ctx", {})
    if kind == "extra_forbidden":
        return unknown_field(root, location)
    if kind in _WANTED:
        wanted = _WANTED[kind]
        fields = names_of(model_at(root, location))
        return _no_such_shape(found, wanted, fields) or _no_such_value(found, wanted)
    if (path := path_of(location)) in NAMES and kind in _OF_TEXT:
        return refused_name(path, found, longest=limits.get("max_length"))
    anything_else = (
        f"this is not allowed here: see `kubectl explain {_explained(root, ())} --recursive`."
    )
    sentence = _SENTENCES[kind](found, limits) if kind in _SENTENCES else anything_else
    # A boolean is an int in Python, and 0 equals False.
    hint = _TO_STOP.get(path, "") if found in (0, False) else ""
    return f"{sentence}{hint}"


def _no_such_shape(found: object, wanted: str, fields: Sequence[str]) -> str:
    """Where one of an object, a list and a single value was written for another; empty: it was not.

    Args:
        found: as it is written.
        wanted: what belongs there.
        fields: of the object that belongs there, or in the list.
    """
    if wanted == "an object":
        below = f"its fields below it, such as {fields[0]}" if fields else _LINES
        return f"{_belongs(found, wanted)}: write {below}."
    if wanted == "a list":
        item = f", beginning with {fields[0]}" if fields else ""
        return f"{_belongs(found, wanted)}: write {_ITEMS}{item}."
    if found is None:
        return f"{_belongs(found, wanted)}: write it, or remove the item."
    if isinstance(found, list | dict):
        return f"{_belongs(found, wanted)}: write one value."
    return ""


def _no_such_value(found: object, wanted: str) -> str:
    if wanted == "text":
        return f"{_shown(found)} is not text: put it in quotes."
    if isinstance(found, str) and _SCALARS[wanted].fullmatch(found):
        return f"{_shown(found)} is text: write {found}, without quotes."
    if wanted == "true or false":
        return f"{_shown(found)} is neither true nor false: write one of them, without quotes."
    return f"{_shown(found)} is not {wanted}: write one, without quotes."


def _belongs(found: object, wanted: str) -> str:
    if found is None:
        return f"this is empty, where {wanted} belongs"
    return f"this is {_kind_of(found)}, where {wanted} belongs"


def _kind_of(found: object) -> str:
    match found:
        case bool():
            return _shown(found)
        case str():
            return "text"
        case list():
            return "a list"
        case dict():
            return "an object"
        case _:
            return "a number"


def _not_one_of(found: object, possible: Sequence[str]) -> str:
    *others, last = map(repr, possible)
    wanted = f"one of {', '.join(others)} or {last}" if others else last
    if found is None or isinstance(found, list | dict):
        return f"{_belongs(found, wanted)}: write one value."
    meant = _meant(found, possible)
    return f"{_shown(found)} is not {wanted}.{f' Did you mean {meant}?' if meant else ''}"


def _meant(found: object, possible: Sequence[str]) -> str:
    """Which of them; empty: none that could be told."""
    if isinstance(found, bool):
        # YAML reads on and yes, off and no so.
        likely = ("Enabled", "Auto") if found else ("Disabled", "Never")
        return next((each for each in likely if each in possible), "")
    if not isinstance(found, str):
        return ""
    if near := nearest(found[:_SHOWN], possible):
        return near
    within = [each for each in possible if each.lower() in found.lower()]
    return max(within, key=len, default="")


def _exact(limit: float) -> float:
    """Without the .0 of a number that could have a fraction."""
    return int(limit) if limit == int(limit) else limit


def _shown(value: object) -> str:
    """As it stands in the manifest, or the beginning of it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str) and len(value) > _SHOWN:
        return f"{value[:_SHOWN]!r}…"
    return repr(value)


def _not_of_pattern(found: object, pattern: str) -> str:
    if one_of := _ONE_OF.fullmatch(pattern):
        return _not_one_of(found, [each for each in one_of[1].split("|") if each])
    if pattern in _NO_REFERENCE:
        return _NO_REFERENCE[pattern]
    return f"{_shown(found)} is not a size: write a number and its unit, such as 200Gi."


_TO_STOP: Final[Mapping[str, str]] = {
    "spec.speculation.tokens": " To serve without drafts, set speculation.drafting to Disabled.",
    "spec.speculation.tuning.mode": (
        " YAML reads off as false. To keep one depth, write Static; to serve without drafts, set "
        "speculation.drafting to Disabled."
    ),
}
"""Where 0 or off is written to stop something: what stops it."""
_SENTENCES: Final[Mapping[str, Callable[[Any, Mapping[str, Any]], str]]] = {
    "missing": lambda _, __: "required, but missing: set it.",
    "enum": lambda found, limits: _not_one_of(found, _QUOTED.findall(limits["expected"])),
    "literal_error": lambda found, limits: _not_one_of(found, _QUOTED.findall(limits["expected"])),
    "string_pattern_mismatch": lambda found, limits: _not_of_pattern(found, limits["pattern"]),
    "greater_than_equal": lambda found, limits: (
        f"{_shown(found)} is too small: {_exact(limits['ge'])} is the least."
    ),
    "greater_than": lambda found, limits: (
        f"{_shown(found)} is too small: it must be more than {_exact(limits['gt'])}."
    ),
    "less_than_equal": lambda found, limits: (
        f"{_shown(found)} is too large: {_exact(limits['le'])} is the most."
    ),
    "string_too_short": lambda _, __: "this is empty: set it.",
    "string_too_long": lambda found, limits: (
        f"this has {len(found)} characters: {limits['max_length']} are the most."
    ),
    "too_short": lambda _, __: "this list is empty: give it an item, or leave the field out.",
    "too_long": lambda found, limits: (
        f"this list has {len(found)} items: {limits['max_length']} are the most."
    ),
}
"""By pydantic's name of an error: of what was found and what is allowed."""
