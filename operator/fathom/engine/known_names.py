"""Which options and draft fields each release of vLLM knows; others it would not start with.

The lists stand in `known_names.json`, written by `fathom_local.tools.known_names` from the releases
themselves. Pure.
"""

from functools import lru_cache
from importlib.resources import files
from typing import Final

from pydantic import BaseModel, ConfigDict

FILE: Final = "known_names.json"


class Names(BaseModel):
    """Names that the same releases know."""

    model_config = ConfigDict(frozen=True)

    releases: tuple[str, ...]
    names: tuple[str, ...]


class KnownNames(BaseModel):
    """Of every release that was asked."""

    model_config = ConfigDict(frozen=True)

    releases: tuple[str, ...]
    """Ascending."""
    options: tuple[Names, ...]
    """Of `vllm serve`, those that begin with two dashes."""
    draft: tuple[Names, ...]
    """Fields of vLLM's speculative configuration."""


@lru_cache(maxsize=1)
def known_names() -> KnownNames:
    """What the file says."""
    text = files(__package__).joinpath(FILE).read_text(encoding="utf-8")
    return KnownNames.model_validate_json(text)


def names_of(release: str, rows: tuple[Names, ...]) -> frozenset[str]:
    """What one of the releases that were asked knows."""
    return frozenset(name for row in rows if release in row.releases for name in row.names)
