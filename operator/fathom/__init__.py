"""Fathom: speculative decoding on Kubernetes whose depth follows live measurements.

Which build of it this is, where anything tells: for people, nothing is decided by it.
"""

import os
import shutil
import subprocess
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Final

__version__ = version("fathom")

BUILD_VARIABLE: Final = "FATHOM_BUILD"
"""Set by the image, from what its build was given."""
_PATIENCE_S: Final = 5.0


def build_name(
    environment: Mapping[str, str] = os.environ, checkout: Path = Path(__file__).parents[2]
) -> str:
    """Such as `3f2a9c1d8b7e`; empty where nothing tells.

    Asks git for at most five seconds.

    Args:
        environment: the process's.
        checkout: where the sources lie, if this is a checkout.
    """
    return environment.get(BUILD_VARIABLE, "") or _of_checkout(checkout)


def version_and_build(build: str | None = None) -> str:
    """Such as `0.1.0 (build 3f2a9c1d8b7e)`; the version alone where nothing tells the build.

    Args:
        build: its name, empty: not known; None: ask, as `build_name` does.
    """
    build = build_name() if build is None else build
    return f"{__version__} (build {build})" if build else __version__


def _of_checkout(checkout: Path) -> str:
    """What git calls it; empty: it is no checkout, or git does not say."""
    git = shutil.which("git")
    if git is None or not (checkout / ".git").exists():
        return ""
    command = [git, "-C", str(checkout), "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        said = subprocess.run(  # noqa: S603 - git, of a checkout
            command, capture_output=True, text=True, timeout=_PATIENCE_S, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return said.stdout.strip()
