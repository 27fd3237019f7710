"""Gets the programs of a control plane: the user's own, cached, downloaded, or built."""

import fcntl
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.progress import Progress

from local_cluster.control_plane.binaries import (
    ASSETS,
    CONTROL_PLANE,
    Binaries,
    assets_binaries,
    cached_binaries,
    prefer,
    publish,
)
from local_cluster.control_plane.debian_source import PREREQUISITES, DebianSource
from local_cluster.control_plane.release import (
    ADDRESS,
    VERSION,
    ReleaseError,
    download_programs,
    released_programs,
)
from local_cluster.errors import LocalClusterError
from local_cluster.paths import cache_dir
from local_cluster.prerequisites import require_programs

Debian = Callable[[Path, Path, Progress], DebianSource]
"""What Debian's packages give, in an empty workspace, by a folder of downloads that is kept."""


def present_binaries(programs: Sequence[str] = CONTROL_PLANE) -> Binaries | None:
    """What `KUBEBUILDER_ASSETS` names, else what was asked of the cache last; nothing is fetched.

    Raises:
        LocalClusterError: the variable is set, and a program is missing there.
    """
    return assets_binaries(programs) or cached_binaries()


def check_obtainable(*, debian: bool) -> None:
    """Checks that there is a control plane, or that this machine has what it takes to get one.

    Args:
        debian: whether this is Debian, whose packages have all that is missing.

    Raises:
        LocalClusterError: neither; the message says what to install.
    """
    if present_binaries() is not None:
        return
    if debian:
        require_programs(PREREQUISITES)
    elif shutil.which("etcd") is None:
        raise LocalClusterError(
            "A release of Kubernetes holds no etcd, there is none on PATH, and this is not Debian, "
            f"whose package would be taken: install etcd, or set {ASSETS} to a folder with "
            f"{', '.join(CONTROL_PLANE)}."
        )


def ensure_binaries(
    progress: Progress,
    *,
    programs: Sequence[str] = CONTROL_PLANE,
    version: str | None = None,
    address: str = ADDRESS,
    debian: Debian = DebianSource,
) -> Binaries:
    """The programs of a control plane; they are fetched first if there are none.

    The Kubernetes project's own are preferred. Where they cannot be downloaded, Debian's source
    package is compiled. Safe to call from several processes at once: one gets them, the others
    wait for it.

    Args:
        progress: where to show what is being done.
        programs: those that are needed, where `KUBEBUILDER_ASSETS` names a folder.
        version: the release that it has to be, such as 1.34.1; it is cached, downloaded, or nothing
            is. Clusters are made of it from now on.
        address: of the releases, see `release.released_programs`.
        debian: what has Debian's packages.

    Raises:
        LocalClusterError: they cannot be had; the message says what to do.
    """
    if version is None and (found := present_binaries(programs)) is not None:
        return found
    root = cache_dir() / "control-plane"
    root.mkdir(parents=True, exist_ok=True)
    with _locked(root / ".lock"):
        # Another process may have got them while this one waited.
        if (found := cached_binaries(version or "*")) is not None:
            if version is not None:
                prefer(found)
            return found
        for left in root.glob(".build-*"):  # by a process that was killed
            shutil.rmtree(left, ignore_errors=True)
        # Kept until there is a control plane: the next attempt continues with what is there.
        downloads = root / ".downloads"
        downloads.mkdir(exist_ok=True)
        try:
            with _workspace(root) as workspace:
                source = debian(workspace, downloads, progress)
                found = _download(version or VERSION, root, source, address)
        except ReleaseError as error:
            if version is not None:
                raise
            progress.console.print(
                f"{error} Building from Debian's source package instead.", soft_wrap=True
            )
            with _workspace(root) as workspace:
                found = debian(workspace, downloads, progress).build(root)
        shutil.rmtree(downloads)
        return found


def _download(version: str, root: Path, debian: DebianSource, address: str) -> Binaries:
    programs = released_programs(version, address)
    folder = debian.downloads / f"kubernetes-{version}"
    folder.mkdir(exist_ok=True)
    # Before the rest, which is of no use without it.
    shutil.copy2(_etcd(debian), folder / "etcd")
    download_programs(programs, folder, debian.progress)
    return publish(folder, root, version)


def _etcd(debian: DebianSource) -> Path:
    """It is no part of a release of Kubernetes: the machine's own, else Debian's."""
    if (own := shutil.which("etcd")) is not None:
        return Path(own)
    try:
        return debian.etcd()
    except LocalClusterError as error:
        raise LocalClusterError(
            "A release of Kubernetes holds no etcd, there is none on PATH, and Debian's package "
            f"cannot be had: install etcd, and try again. {error}"
        ) from error


@contextmanager
def _workspace(root: Path) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix=".build-", dir=root) as workspace:
        yield Path(workspace)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
