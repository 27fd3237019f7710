"""This package as files for a ConfigMap. Runs in the operator; imports nothing but the stdlib."""

from pathlib import Path
from typing import Final

_NOT_DELIVERED: Final = frozenset({"bundle.py"})


def fetch_files() -> dict[str, str]:
    """The source files as they lie here: path relative to the import root → text."""
    directory = Path(__file__).parent
    return {
        f"{directory.name}/{path.name}": path.read_text(encoding="utf-8")
        for path in sorted(directory.glob("*.py"))
        if path.name not in _NOT_DELIVERED
    }
