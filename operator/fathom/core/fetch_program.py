"""The program that fetches weights, as the operator delivers it."""

from collections.abc import Mapping
from dataclasses import dataclass

from fathom_fetch.bundle import fetch_files
from fathom_vllm.content import content_hash


@dataclass(frozen=True, slots=True)
class FetchProgram:
    """One version of it."""

    files: Mapping[str, str]
    """Path relative to the directory on `PYTHONPATH`, and its text."""
    content: str
    """Changes whenever any path or text does. It names the ConfigMap, which is immutable."""


def fetch_program() -> FetchProgram:
    """The one that comes with this Fathom."""
    files = fetch_files()
    return FetchProgram(files, content_hash(files))
