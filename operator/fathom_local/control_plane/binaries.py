"""Finds the programs a cluster is made of; `build` makes them."""

import os
from dataclasses import dataclass
from pathlib import Path

from fathom_local.errors import LocalClusterError
from fathom_local.paths import cache_dir

API_SERVER_ONLY = ("etcd", "kube-apiserver")
COMPLETE_MARK = ".complete"
RECIPE = 2
"""Raised when what `build` makes changes, so that caches are built again."""


@dataclass(frozen=True, slots=True)
class Binaries:
    """A directory of programs of one version."""

    directory: Path

    def path(self, name: str) -> Path:
        """Where a program is.

        Raises:
            LocalClusterError: it is not there.
        """
        path = self.directory / name
        if not path.is_file():
            raise LocalClusterError(
                f"{name} is missing in {self.directory}. "
                "Run `fathom local build`, or correct KUBEBUILDER_ASSETS if that named the folder."
            )
        return path


def built_binaries() -> Binaries | None:
    """The newest build in the cache, if any."""
    marks = (cache_dir() / "control-plane").glob(f"*-r{RECIPE}-*/{COMPLETE_MARK}")
    newest = max(marks, key=lambda mark: mark.stat().st_mtime, default=None)
    return None if newest is None else Binaries(newest.parent)


def assets_binaries() -> Binaries | None:
    """What `KUBEBUILDER_ASSETS` names: etcd and kube-apiserver, but no controllers.

    Raises:
        LocalClusterError: it is set, and the programs are not there.
    """
    folder = os.environ.get("KUBEBUILDER_ASSETS")
    if not folder:
        return None
    binaries = Binaries(Path(folder).absolute())
    for name in API_SERVER_ONLY:
        binaries.path(name)
    return binaries
