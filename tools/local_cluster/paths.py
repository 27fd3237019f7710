"""Where things live: what can be built again in the cache, what runs now in the state."""

import os
from pathlib import Path
from typing import Final

TOOLS: Final = Path(__file__).parents[1]
REPOSITORY: Final = TOOLS.parent
SOURCES: Final = (TOOLS, REPOSITORY / "operator")
"""Where a Python that has not installed this project finds its packages."""
PYTHON_PATH: Final = os.pathsep.join(map(str, SOURCES))


def cache_dir() -> Path:
    """What is slow to make: binaries, the engine's environment, models.

    `FATHOM_CACHE_DIR`, else `$XDG_CACHE_HOME/fathom`, else `~/.cache/fathom`.
    """
    override = os.environ.get("FATHOM_CACHE_DIR")
    if override:
        return Path(override).absolute()
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base).absolute() / "fathom"


def state_dir() -> Path:
    """What describes the clusters of this machine, one directory each.

    `FATHOM_STATE_DIR`, else `$XDG_STATE_HOME/fathom`, else `~/.local/state/fathom`.
    """
    override = os.environ.get("FATHOM_STATE_DIR")
    if override:
        return Path(override).absolute()
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base).absolute() / "fathom"
