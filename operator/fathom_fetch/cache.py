"""How much of a model lies in the cache already, by what is on the disk.

By the disk, and not by huggingface_hub's progress bars: their meaning changed with each major
version, and they know nothing of what an earlier fetch left. The layout is documented:
https://huggingface.co/docs/huggingface_hub/guides/manage-cache
"""

import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from huggingface_hub.file_download import repo_folder_name

_PARTIAL: Final = "*.incomplete"
_OF_ONE_PROCESS: Final = re.compile(r".+\.[0-9a-f]{8}\.incomplete")
"""Partial files as huggingface_hub 1.33 and 2.4 name them: no other process goes on with one."""
ABANDONED_SECONDS: Final = 3600.0
"""A partial file that nobody has written to for so long has been given up: a fetch that was killed
cannot tidy up after itself."""


class CachedModel:
    """One commit of one repository in a cache."""

    def __init__(
        self, cache: Path, model_id: str, commit: str, sizes: Mapping[str, int | None]
    ) -> None:
        """Look at nothing yet.

        Args:
            cache: huggingface_hub's cache directory.
            model_id: the repository.
            commit: of the files.
            sizes: bytes of the wanted files, by path within the repository; None: unknown.
        """
        folder = cache / repo_folder_name(repo_id=model_id, repo_type="model")
        self._snapshot = folder / "snapshots" / commit
        self._blobs = folder / "blobs"
        self._sizes = sizes
        # Only what is being written now counts: what was abandoned is not gone on with.
        self._since_s = time.time()

    @property
    def total_bytes(self) -> int | None:
        """None: the hub does not give the size of every file."""
        sizes = [size for size in self._sizes.values() if size is not None]
        return sum(sizes) if len(sizes) == len(self._sizes) else None

    def present_bytes(self) -> int:
        """Bytes of finished files and of those under way, never more than the total."""
        finished = (self._snapshot / path for path in self._sizes)
        found = sum(path.stat().st_size for path in finished if path.exists())
        found += sum(map(self._written, self._partial_files()))
        total = self.total_bytes
        return found if total is None else min(found, total)

    def tidy(self) -> None:
        """Remove partial files that no process will ever go on with."""
        for path in self._partial_files():
            abandoned = self._since_s - _modified_s(path) > ABANDONED_SECONDS
            if abandoned and _OF_ONE_PROCESS.fullmatch(path.name):
                path.unlink(missing_ok=True)

    def _partial_files(self) -> list[Path]:
        return list(self._blobs.glob(_PARTIAL))

    def _written(self, partial: Path) -> int:
        """Bytes on the disk: a file may be laid out at its full size before it is filled."""
        try:
            found = partial.stat()
        except FileNotFoundError:
            return 0  # finished, or given up, in between
        if found.st_mtime < self._since_s:
            return 0
        return min(found.st_size, found.st_blocks * 512)


def _modified_s(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return time.time()
