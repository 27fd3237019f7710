"""Changed options and values in words. Secrets are never spelled out. Pure."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pydantic import JsonValue

from fathom.api.bounded_json import UnreadableJsonError, parsed_json
from fathom.engine.argument_parser import EngineArguments
from fathom.text import HIDDEN, scrubbed

LONGEST: Final = 100
"""Characters of a value that are shown: an image with its digest fits."""
CONTEXT: Final = 20
"""Characters that two long values have in common, shown before the first that differs."""

_SECRET_OPTION: Final = re.compile(
    r"(^|[-_.: ])(api)?(token|secret|password|passphrase|key)$", re.IGNORECASE
)


def is_secret_option(name: str) -> bool:
    """Whether an option, or a key of a JSON one, holds a secret: `--api-key`, not `--max-tokens`.

    Stricter than for variables: half of an engine's options are about tokens.
    """
    return _SECRET_OPTION.search(name) is not None


def shown(value: JsonValue) -> str:
    """A value as it is written, on one line, secrets left out."""
    if isinstance(value, str):
        return scrubbed(value)
    return shown(json.dumps(_redacted(value), separators=(",", ":")))


def in_words(name: str, before: str | None, after: str | None) -> str:
    """What happened to a value, such as `--max-num-seqs 16 became 32`.

    Args:
        name: of what changed; empty: the place where this is said names it.
        before: what it was, as shown; None: it did not exist.
        after: what it is, as shown; None: it exists no more.
    """
    if before is None or after is None:
        value = _cut(after or before or "", 0)
        return _joined(name, value, "was removed" if after is None else "was added")
    if before == after:
        return _joined(name, _cut(after, 0), "changed")
    start = 0
    if max(len(before), len(after)) > LONGEST:
        start = max(0, _in_common(before, after) - CONTEXT)
    return _joined(name, _cut(before, start) or "(none)", "became", _cut(after, start) or "(none)")


def _in_common(first: str, second: str) -> int:
    pairs = enumerate(zip(first, second, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(first), len(second)))


def _joined(*parts: str) -> str:
    return " ".join(part for part in parts if part)


def _cut(text: str, start: int) -> str:
    end = start + LONGEST
    return ("…" if start else "") + text[start:end] + ("…" if end < len(text) else "")


def _redacted(value: JsonValue) -> JsonValue:
    if isinstance(value, Mapping):
        return {
            key: HIDDEN if is_secret_option(key) else _redacted(each) for key, each in value.items()
        }
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_redacted(each) for each in value]
    return value


_DERIVED: Final = ("num_speculative_tokens_per_batch_size", "cudagraph_capture_sizes")
"""The startup schedule and the graphs' sizes follow from other options, so they are never what a
person changed."""


@dataclass(frozen=True, slots=True)
class OptionChange:
    """One option, or one key of an option that takes JSON."""

    name: str
    """`--max-num-seqs`, `--speculative-config: method`; empty: what is no option's value."""
    before: str | None
    """Its value as shown, empty if it takes none; None: it was not there."""
    after: str | None


def changed_options(before: Sequence[str], after: Sequence[str]) -> tuple[OptionChange, ...]:
    """What differs, in the order of `after`, then what `after` lacks; derived keys come last.

    Empty if both mean the same: order, `--a=b` and underscores are no difference.
    """
    old, new = _values(before), _values(after)
    changes = [
        change for name in new | old for change in _compared(name, old.get(name), new.get(name))
    ]
    return tuple(sorted(changes, key=lambda change: change.name.endswith(_DERIVED)))


def _values(args: Sequence[str]) -> dict[str, str]:
    """By option with its dotted keys: all that is given to it."""
    found = EngineArguments.of(args).options
    bounds = [*(option.index for option in found), len(args)]
    values: dict[str, list[str]] = {}
    if leading := args[: bounds[0]]:
        values[""] = list(leading)
    for option, end in zip(found, bounds[1:], strict=True):
        attached = args[option.index] != option.spelling
        given = values.setdefault(".".join([option.name, *option.keys]), [])
        given += [option.value or ""] if attached else []
        given += args[option.index + 1 : end]
    return {name: " ".join(given) for name, given in values.items()}


def _compared(name: str, before: str | None, after: str | None) -> Iterator[OptionChange]:
    if before == after:
        return
    old = {} if before is None else _document(before)
    new = {} if after is None else _document(after)
    if old is not None and new is not None:
        yield from _keys(f"{name}: ", old, new)
    else:
        texts = (None if value is None else _shown(name, value) for value in (before, after))
        yield OptionChange(name, *texts)


def _keys(
    path: str, before: Mapping[str, JsonValue], after: Mapping[str, JsonValue]
) -> Iterator[OptionChange]:
    for key in dict.fromkeys([*after, *before]):
        name, old, new = f"{path}{key}", before.get(key), after.get(key)
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            yield from _keys(f"{name}.", old, new)
        elif key not in before or key not in after or old != new:
            yield OptionChange(
                name,
                _shown(name, old) if key in before else None,
                _shown(name, new) if key in after else None,
            )


def _shown(name: str, value: JsonValue) -> str:
    return HIDDEN if is_secret_option(name) else shown(value)


def _document(value: str | None) -> dict[str, JsonValue] | None:
    """The object that an option's JSON holds; None: it is no such option."""
    try:
        document = parsed_json(value or "")
    except UnreadableJsonError:
        return None
    return document if isinstance(document, dict) else None
