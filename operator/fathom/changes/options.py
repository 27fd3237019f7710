"""Which options differ between two command lines, as vLLM's parser reads them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pydantic import JsonValue

from fathom.api.foreign_json import UnreadableJsonError, parsed_json
from fathom.changes.words import is_secret_option, shown
from fathom.core.scrubbing import HIDDEN
from fathom.engine.arguments import EngineArguments

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
