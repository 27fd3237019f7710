"""A changed value in words: what it was, and what it became. Secrets are never spelled out."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Final

from pydantic import JsonValue

from fathom.core.scrubbing import HIDDEN, scrubbed

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
