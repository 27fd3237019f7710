"""The programs that a cluster is made of: which there are, and where."""

import os
import platform
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from local_cluster.errors import LocalClusterError
from local_cluster.paths import cache_dir

KUBERNETES = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")
"""What is taken of a release of Kubernetes, downloaded or compiled."""
API_SERVER = ("etcd", "kube-apiserver")
"""What stores and validates, and makes no pods."""
CONTROL_PLANE = (*API_SERVER, "kube-controller-manager", "kube-scheduler")
ASSETS = "KUBEBUILDER_ASSETS"
COMPLETE_MARK = ".complete"
RECIPE = 2
"""Raised when what the cache holds is to be made in another way, so that it is made again."""
VERSION_SECONDS = 30.0


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
                f"Run `fathom local build`, or correct {ASSETS} if that named the folder."
            )
        return path

    def version(self) -> str:
        """The API server's, such as 1.36.2.

        Raises:
            LocalClusterError: it does not say.
        """
        program = self.path("kube-apiserver")
        try:
            said = subprocess.run(
                [program, "--version"],
                capture_output=True,
                text=True,
                check=True,
                timeout=VERSION_SECONDS,
            ).stdout
        except (OSError, subprocess.SubprocessError) as error:
            raise LocalClusterError(f"{program} does not run on this machine: {error}") from error
        found = re.search(r"v(\d+\.\d+\.\d+)", said)
        if found is None:
            raise LocalClusterError(f"{program} --version says {said.strip()!r}, no version.")
        return found[1]


def cached_binaries(version: str = "*") -> Binaries | None:
    """What was asked of the cache last, of any version or of this one."""
    marks = (cache_dir() / "control-plane").glob(f"{version}-r{RECIPE}-*/{COMPLETE_MARK}")
    newest = max(marks, key=lambda mark: mark.stat().st_mtime, default=None)
    return None if newest is None else Binaries(newest.parent)


def prefer(binaries: Binaries) -> None:
    """Makes cached programs those that were asked for last."""
    (binaries.directory / COMPLETE_MARK).touch()


def publish(programs: Path, root: Path, version: str) -> Binaries:
    """Moves a complete folder of programs into the cache of control planes at `root`."""
    (programs / COMPLETE_MARK).touch()
    target = root / f"{version}-r{RECIPE}-{platform.machine()}"
    # The rename is what publishes it; whatever is there already is incomplete.
    shutil.rmtree(target, ignore_errors=True)
    programs.rename(target)
    return Binaries(target)


def assets_binaries(programs: Sequence[str] = CONTROL_PLANE) -> Binaries | None:
    """What `KUBEBUILDER_ASSETS` names, if it is set.

    Raises:
        LocalClusterError: it is set, and not all of `programs` are there.
    """
    folder = os.environ.get(ASSETS)
    if not folder:
        return None
    binaries = Binaries(Path(folder).absolute())
    for name in programs:
        if name not in API_SERVER and not (binaries.directory / name).is_file():
            raise LocalClusterError(
                f"{name} is missing in {binaries.directory}, which {ASSETS} names. setup-envtest "
                "brings an API server alone. Put kube-controller-manager and kube-scheduler of "
                f"its version beside it, or unset {ASSETS}."
            )
        binaries.path(name)
    return binaries
