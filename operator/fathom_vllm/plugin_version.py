"""Which version of the plugin this is, told by its content."""

import hashlib
from collections.abc import Mapping
from importlib.resources import files

_PACKAGE = __name__.rpartition(".")[0]
NOT_DELIVERED = frozenset({"bundle.py"})
"""The operator's half: it packs the plugin, and is not part of it."""


def package_files() -> dict[str, str]:
    """The plugin's own source files: path relative to the import root → text.

    They lie in a directory or in a zip, whichever is on `PYTHONPATH`.
    """
    sources = {
        each.name: each.read_text(encoding="utf-8")
        for each in files(_PACKAGE).iterdir()
        if each.name.endswith(".py") and each.name not in NOT_DELIVERED
    }
    return {f"{_PACKAGE}/{name}": sources[name] for name in sorted(sources)}


def content_hash(files: Mapping[str, str]) -> str:
    """Twelve hex digits that change whenever any path or text does."""
    digest = hashlib.sha256()
    for path, text in sorted(files.items()):
        for part in (path, text):
            encoded = part.encode()
            digest.update(len(encoded).to_bytes(8, "big"))
            digest.update(encoded)
    return digest.hexdigest()[:12]
