"""What each vLLM release knows: options and what they take, closed sets of values, draft fields.

`generators.known_names` writes `known_names.json` from the releases themselves; a test of the
engine tier compares it with vLLM's own parser. Pure.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from importlib.resources import files
from json import JSONDecodeError
from types import MappingProxyType
from typing import Final

from packaging.version import Version
from pydantic import BaseModel, ConfigDict, JsonValue

from fathom.api.bounded_json import BeyondBoundsError, UnreadableJsonError, parsed_json
from fathom.engine.argument_parser import EngineArguments, EngineOption, whole_number

FILE: Final = "known_names.json"
ATTENTION_BACKEND: Final = "attention backend"
TOOL_PARSER: Final = "--tool-call-parser"
REASONING_PARSER: Final = "--reasoning-parser"
LOAD_FORMAT: Final = "--load-format"
CONNECTOR: Final = "KV connector"
OPTIMIZATION: Final = "-O"
DRAFT: Final = "draft."
"""What the names of draft fields begin with, among those that have a closed set of values."""
_QUOTES: Final = "\"'`"
_STRING_OR_SIZE: Final = re.compile(r'("(?:[^"\\]|\\.)*")|\b\d+(?:\.\d+)?[kKmMgGtT]\b')
_LIKE_AN_OPTION: Final = re.compile(r"--?[A-Za-z]")
_NOTHING: Final = frozenset({"", "None"})
"""Values that vLLM takes for none where an option may have none."""


class Takes(StrEnum):
    """What an option takes."""

    NOTHING = "nothing"
    TEXT = "text"
    NAME = "name"
    """A text that is compared in small letters, and with underscores for dashes."""
    WHOLE = "whole number"
    SIZE = "size"
    """A whole number, which may be written as 1k or 2M."""
    LENGTH = "size or auto"
    NUMBER = "number"
    JSON = "JSON"
    OBJECT = "object"
    OBJECT_OR_TEXT = "object or text"


WORDS: Final[Mapping[Takes, str]] = MappingProxyType(
    {
        Takes.WHOLE: "a whole number",
        Takes.SIZE: "a whole number, such as 8192 or 8k",
        Takes.LENGTH: "a whole number from -1 up, such as 8192 or 8k, or auto",
        Takes.NUMBER: "a number",
        Takes.JSON: "JSON",
        Takes.OBJECT: 'a JSON object, such as {"key": 1}',
        Takes.OBJECT_OR_TEXT: "a text or a JSON object",
    }
)
KEYED: Final = frozenset({Takes.TEXT, Takes.NAME, Takes.JSON, Takes.OBJECT, Takes.OBJECT_OR_TEXT})
"""What an option may take whose keys are set one by one, as far as is known here."""


class Names(BaseModel):
    """Names that the same releases know."""

    model_config = ConfigDict(frozen=True)

    releases: tuple[str, ...]
    names: tuple[str, ...]


class Options(Names):
    """Options that take the same."""

    takes: Takes
    many: bool = False
    """As many values as there are behind it."""
    bare: bool = False
    """A value, or none."""
    none: bool = False
    """Also `None`, or an empty text."""


class Values(Names):
    """A closed set of values, or of keys."""

    of: tuple[str, ...]
    """The names of the option, or of the one key that has it."""


class KnownNames(BaseModel):
    """Known names of every release that was asked."""

    model_config = ConfigDict(frozen=True)

    releases: tuple[str, ...]
    """Ascending."""
    options: tuple[Options, ...]
    """Options of `vllm serve`."""
    draft: tuple[Names, ...]
    """Fields of vLLM's speculative configuration."""
    values: tuple[Values, ...]
    keys: tuple[Values, ...]
    """Keys of objects that take no others."""
    aliases: tuple[Values, ...]
    """Other names of the same options."""


@lru_cache(maxsize=1)
def known_names() -> KnownNames:
    """What the file says."""
    text = files(__package__).joinpath(FILE).read_text(encoding="utf-8")
    return KnownNames.model_validate_json(text)


def release_for(releases: Iterable[str], version: Version | None) -> str | None:
    """The release that stands for a version; None: none of these does, or it is not known.

    A patch release knows what the first of its minor release does.
    """
    minor = version and version.release[:2]
    return next((each for each in releases if Version(each).release[:2] == minor), None)


def who_has(name: str, rows: Iterable[Names]) -> str:
    """Which releases have a name, such as `0.32.0, 0.33.0 do`; empty: none that was asked."""
    releases = next((row.releases for row in rows if name in row.names), ())
    does = "does" if len(releases) == 1 else "do"
    return f"{', '.join(releases)} {does}" if releases else ""


def names_of(release: str, rows: Iterable[Names]) -> frozenset[str]:
    """What one of the releases that were asked knows."""
    return frozenset(name for row in rows if release in row.releases for name in row.names)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseNames:
    """What one release knows."""

    options: Mapping[str, Options]
    draft: frozenset[str]
    values: Mapping[str, frozenset[str]]
    """By option, by `draft.` and field, or by option and key."""
    keys: Mapping[str, frozenset[str]]
    """By option."""
    first: Mapping[str, str]
    """The first name of an option, by its others."""

    def meant(self, name: str) -> tuple[str, ...]:
        """The options that argparse may take a name for: itself, or those that begin so."""
        if name in self.options:
            return (name,)
        begin_so = tuple(each for each in self.options if each.startswith(name))
        if name.startswith("--"):
            return begin_so
        # `-n2` is `-n 2`, and `-O3` is vLLM's own.
        if name.startswith(OPTIMIZATION):
            return (OPTIMIZATION,)
        return tuple(each for each in self.options if each == name[:2]) or begin_so


@lru_cache(maxsize=8)
def names_in(version: Version | None) -> ReleaseNames | None:
    """What a release knows; None: it was not asked, or is not known."""
    known = known_names()
    release = release_for(known.releases, version)
    if release is None:
        return None
    return ReleaseNames(
        options={
            name: row for row in known.options if release in row.releases for name in row.names
        },
        draft=names_of(release, known.draft),
        values=_sets(release, known.values),
        keys=_sets(release, known.keys),
        first={
            other: row.of[0]
            for row in known.aliases
            if release in row.releases
            for other in row.names
        },
    )


def _sets(release: str, rows: Iterable[Values]) -> Mapping[str, frozenset[str]]:
    found: dict[str, frozenset[str]] = {}
    for row in rows:
        for name in row.of if release in row.releases else ():
            found[name] = found.get(name, frozenset()).union(row.names)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """An option that a release knows, as it was given."""

    option: EngineOption
    name: str
    """The first that it has in this release."""
    row: Options
    """What it takes."""
    values: tuple[str, ...]
    """Those behind it, whether or not it takes so many."""
    attached: bool
    """Whether its value is written in one argument with it."""

    @property
    def value(self) -> str:
        """The one that counts; empty: there is none."""
        return self.values[0] if self.values else ""


def given_options(arguments: EngineArguments, names: ReleaseNames) -> Iterator[Given]:
    """Options that mean one thing to a release, in order."""
    words = arguments.words
    begins = {option.index for option in arguments.options}
    for option in arguments.options:
        meant = names.meant(option.name)
        if len(meant) != 1 or meant[0] == OPTIMIZATION:
            continue
        short = not option.name.startswith("--") and not meant[0].startswith(option.name)
        attached = short or "=" in words[option.index]
        values = _behind(words[option.index + 1 :], option.index + 1, begins)
        if attached:
            values = [option.name.removeprefix(meant[0]) if short else option.value or ""]
        yield Given(
            option=option,
            name=names.first.get(meant[0], meant[0]),
            row=names.options[meant[0]],
            values=tuple(values),
            attached=attached,
        )


def _behind(words: Sequence[str], first: int, begins: Collection[int]) -> list[str]:
    """The words up to the next option, be it in one argument with its value."""
    found: list[str] = []
    for at, word in enumerate(words, first):
        if at in begins or (found and _LIKE_AN_OPTION.match(word)):
            break
        found.append(word)
    return found


def fault_of(option: Options, values: frozenset[str], text: str) -> str:
    """Why vLLM's parser refuses a value, as the second half of a sentence; empty: it may take it.

    Args:
        option: what it takes.
        values: the closed set; empty: there is none.
        text: the value.
    """
    if option.none and text in _NOTHING:
        return ""
    if option.takes in _JSON:
        return _fault_of_json(option.takes, text)
    if option.takes in _NUMBERS and not _NUMBERS[option.takes](text):
        return f"needs {WORDS[option.takes]}"
    if values and not in_set(option.takes, values, text):
        return "has no such value"
    return ""


def in_set(takes: Takes, values: Iterable[str], text: str) -> bool:
    """Whether a closed set has a value, as vLLM compares it."""
    if takes is Takes.NAME:
        return _alike(text) in map(_alike, values)
    number = whole_number(text) if takes is Takes.WHOLE else None
    return (text if number is None else str(number)) in values


def object_of(takes: Takes, text: str) -> JsonValue:
    """What JSON says to vLLM.

    Raises:
        UnreadableJsonError: it cannot be read.
    """
    # Outside of strings, 8k is a number to it.
    sizes = takes is Takes.OBJECT
    return parsed_json(_STRING_OR_SIZE.sub(_number_of_size, text) if sizes else text)


def _fault_of_json(takes: Takes, text: str) -> str:
    stripped = text.strip()
    if takes is Takes.OBJECT_OR_TEXT and not (stripped[:1] == "{" and stripped[-1:] == "}"):
        return ""
    try:
        found = object_of(takes, text)
    except BeyondBoundsError:
        return ""
    except UnreadableJsonError as error:
        return f"needs {WORDS[takes]}{_cause(error.__cause__, stripped)}"
    if takes is Takes.OBJECT and not isinstance(found, dict):
        quoted = isinstance(found, str) and found.strip()[:1] == "{"
        return f"needs {WORDS[takes]}{', without quotes around it' if quoted else ''}"
    return ""


def _cause(error: BaseException | None, text: str) -> str:
    """Why a text is no JSON, as the rest of a sentence."""
    if text[:1] and text[:1] in _QUOTES and text[-1:] == text[:1]:
        return ", without quotes around it: YAML keeps them, where a shell takes them off"
    if not isinstance(error, JSONDecodeError):
        return ", and has no JSON"
    if error.pos >= len(error.doc.rstrip()) or error.msg.startswith("Unterminated"):
        return ", and its value ends too early"
    if "double quotes" in error.msg:
        return f", and has none: names need double quotes (character {error.pos + 1})"
    return f", and has none: see character {error.pos + 1}"


def _number_of_size(found: re.Match[str]) -> str:
    return found[1] or str(whole_number(found[0]))


def _alike(text: str) -> str:
    return text.lower().replace("-", "_")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _is_length(text: str) -> bool:
    found = -1 if text.strip().lower() == "auto" else whole_number(text)
    return found is not None and found >= -1


_JSON: Final = frozenset({Takes.JSON, Takes.OBJECT, Takes.OBJECT_OR_TEXT})
_NUMBERS: Final[Mapping[Takes, Callable[[str], bool]]] = MappingProxyType(
    {
        Takes.WHOLE: lambda text: text.strip()[-1:].isdecimal() and whole_number(text) is not None,
        Takes.SIZE: lambda text: whole_number(text) is not None,
        Takes.LENGTH: _is_length,
        Takes.NUMBER: _is_number,
    }
)
