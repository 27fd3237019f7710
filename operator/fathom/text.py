"""Text for people: counts in words, texts with an end, and no secrets in them. Pure.

What leaves is scrubbed once, where it leaves: status, events, log. Secrets are known by their
shape, or since the resource gives them literally under a name that means one.
"""

import re
from collections.abc import Collection, Mapping
from typing import Final

from pydantic import JsonValue

HIDDEN: Final = "(hidden)"
LEAST_LENGTH: Final = 8
"""Characters of a literal value: shorter ones would take apart words that mean something else."""
_SECRET_VARIABLE: Final = re.compile(
    r"token(?!iz)|secret|passw|passphrase|credential|key", re.IGNORECASE
)
_SHAPES: Final = re.compile(
    r"""
    (?<=://)[^/\s@'"]+(?=@)                                 # the user part of a URL
    | (?<=[Bb]earer\s)[A-Za-z0-9._~+/=-]{8,}
    | \bhf_[A-Za-z0-9]{8,}                                  # Hugging Face
    | \bsk-[A-Za-z0-9_-]{8,}                                # OpenAI and what speaks like it
    | \bnvapi-[A-Za-z0-9_-]{8,}                             # NVIDIA
    | \bgh[pousr]_[A-Za-z0-9]{20,} | \bgithub_pat_\w{20,} | \bglpat-[\w-]{20,}
    | \bAKIA[0-9A-Z]{16}\b                                  # AWS
    | \beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*                     # a JSON web token
    | (?<=-----BEGIN\ PRIVATE\ KEY-----)[\s\S]+?(?=-----END)
    """,
    re.VERBOSE,
)
_NAMED: Final = re.compile(
    r"""((?:api[_-]?key|secret|passw(?:or)?d|access[_-]?token|auth[_-]?token)"""
    r"""['"]?\s*[=:]\s*\[?\s*['"]?)[^\s'",\]}]{4,}""",
    re.IGNORECASE,
)


def counted(count: float, one: str, several: str = "") -> str:
    """`1 minute`, `2 minutes`: as a sentence says it.

    Args:
        count: shown as a whole number.
        one: what follows where the number is 1, such as `minute`, `more minute`, `pod is`.
        several: what follows any other number; empty: `one` and an s.
    """
    number = f"{count:.0f}"
    return f"{number} {one if number == '1' else several or f'{one}s'}"


def shortened(text: str, longest: int, *, keeps_end: bool = True) -> str:
    """The text, or where it is too long its two ends, and how much is left out between them.

    Our messages say at their end what follows, and a traceback what went wrong.

    Args:
        text: of any length.
        longest: characters that it may have.
        keeps_end: False: its beginning alone says what is wrong, as that of an error does.
    """
    if len(text) <= longest:
        return text
    room = longest - len(_left_out(len(text)))
    end = room // 2 if keeps_end else 0
    return f"{text[: room - end]}{_left_out(len(text) - room)}{text[len(text) - end :]}"


def _left_out(characters: int) -> str:
    return f" ... {counted(characters, 'more character')} ... "


def is_secret_variable(name: str) -> bool:
    """Whether an environment variable may hold a secret. Rather one too many."""
    return _SECRET_VARIABLE.search(name) is not None


def scrubbed(text: str, known: Collection[str] = ()) -> str:
    """The text with every secret hidden.

    Args:
        text: of any length.
        known: values that are secrets, whatever their shape.
    """
    for secret in sorted(known, key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    return _NAMED.sub(rf"\1{HIDDEN}", _SHAPES.sub(HIDDEN, text))


def scrubbed_value(value: JsonValue, known: Collection[str] = ()) -> JsonValue:
    """The same of every text in a JSON value; keys stay."""
    if isinstance(value, str):
        return scrubbed(value, known)
    if isinstance(value, dict):
        return {key: scrubbed_value(each, known) for key, each in value.items()}
    if isinstance(value, list):
        return [scrubbed_value(each, known) for each in value]
    return value


def literal_secrets(resource: Mapping[str, JsonValue]) -> frozenset[str]:
    """Values that a resource gives its containers literally, under names that mean a secret."""
    return frozenset(_found(resource.get("spec")))


def _found(value: JsonValue) -> list[str]:
    if isinstance(value, list):
        return [each for item in value for each in _found(item)]
    if not isinstance(value, dict):
        return []
    name, text = value.get("name"), value.get("value")
    if isinstance(name, str) and isinstance(text, str) and is_secret_variable(name):
        return [text] if len(text) >= LEAST_LENGTH else []
    return [each for item in value.values() for each in _found(item)]
