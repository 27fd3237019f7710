"""Files that change all at once, as in a ConfigMap volume of a real kubelet.

`..data` links to a folder with the files, and each visible name links through it; an update
prepares a second folder and swaps the one link. A reader therefore sees all of the old or all of
the new, and one that watches sees a rename of `..data`.
"""

import os
import shutil
import tempfile
from pathlib import Path
from typing import NamedTuple

DATA = "..data"


class FileContent(NamedTuple):
    """One file to show."""

    content: bytes
    mode: int = 0o644


Payload = dict[str, FileContent]
"""By relative path."""


def write_payload(folder: Path, payload: Payload) -> bool:
    """Makes the folder show exactly the payload; returns whether that was a change."""
    folder.mkdir(parents=True, exist_ok=True)
    data = folder / DATA
    if data.exists() and _read(data) == payload:
        return False
    new = Path(tempfile.mkdtemp(prefix="..", dir=folder))
    new.chmod(0o755)
    for relative, file in payload.items():
        path = new / relative
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(file.content)
        path.chmod(file.mode)
    old = data.resolve() if data.exists() else None
    swap = folder / "..data_tmp"
    swap.unlink(missing_ok=True)
    swap.symlink_to(new.name)
    swap.rename(data)
    visible = {Path(relative).parts[0] for relative in payload}
    for name in visible:
        link = folder / name
        if not link.is_symlink():
            link.symlink_to(Path(DATA) / name)
    for entry in os.scandir(folder):
        if not entry.name.startswith("..") and entry.name not in visible:
            Path(entry.path).unlink()
    if old is not None:
        shutil.rmtree(old, ignore_errors=True)
    return True


def _read(folder: Path) -> Payload:
    found: Payload = {}
    for path in folder.resolve().rglob("*"):
        if path.is_file():
            relative = path.relative_to(folder.resolve()).as_posix()
            found[relative] = FileContent(path.read_bytes(), path.stat().st_mode & 0o7777)
    return found
