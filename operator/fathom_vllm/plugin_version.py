"""Which version of the plugin this is, told by its content."""

import hashlib
from collections.abc import Mapping
from pathlib import Path

NOT_DELIVERED = frozenset({"bundle.py"})
"""The operator's half: it packs the plugin, and is not part of it."""


def package_files() -> dict[str, str]:
    """The plugin's own source files as they lie here: path relative to the import root → text."""
    directory = Path(__file__).parent
    return {
        f"{directory.name}/{path.name}": path.read_text(encoding="utf-8")
        for path in sorted(directory.glob("*.py"))
        if path.name not in NOT_DELIVERED
    }


def content_hash(files: Mapping[str, str]) -> str:
    """Twelve hex digits that change whenever any path or text does."""
    digest = hashlib.sha256()
    for path, text in sorted(files.items()):
        for part in (path, text):
            encoded = part.encode()
            digest.update(len(encoded).to_bytes(8, "big"))
            digest.update(encoded)
    return digest.hexdigest()[:12]
