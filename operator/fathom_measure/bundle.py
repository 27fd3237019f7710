"""This package as files for a ConfigMap. Runs beside the user; imports nothing but the stdlib."""

from pathlib import Path
from typing import Final

_NOT_DELIVERED: Final = frozenset({"bundle.py"})
_MAIN: Final = "__main__.py"


def measure_files() -> dict[str, str]:
    """The source files: path relative to the folder that `python3 FOLDER` starts → text."""
    directory = Path(__file__).parent
    texts = {
        path.name: path.read_text(encoding="utf-8")
        for path in sorted(directory.glob("*.py"))
        if path.name not in _NOT_DELIVERED
    }
    # A folder on the command line is started by the `__main__.py` that lies in it, and is where
    # packages are found: neither PYTHONPATH nor the image's own packages change.
    files = {_MAIN: texts.pop(_MAIN)}
    return files | {f"{directory.name}/{name}": text for name, text in texts.items()}
