"""Words of others without secrets in them: an engine's last ones, a hub's, an API server's. Pure.

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
