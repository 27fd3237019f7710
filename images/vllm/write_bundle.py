"""Writes the engine plugin into a folder that can stand on PYTHONPATH."""  # noqa: INP001 - a script

import sys
from pathlib import Path

from fathom_vllm.bundle import bundle_files

if __name__ == "__main__":
    target = Path(sys.argv[1])
    for path, text in bundle_files().items():
        file = target / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
