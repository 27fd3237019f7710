"""Gets the programs of a control plane: the user's own, cached, downloaded, or built."""

import fcntl
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from local_cluster.control_plane.binaries import (
    CONTROL_PLANE,
    Binaries,
    assets_binaries,
    cached_binaries,
    prefer,
    publish,
)
from local_cluster.control_plane.debian_source import DebianSource
from local_cluster.control_plane.release import ADDRESS, VERSION, ReleaseError, download_release
from local_cluster.errors import LocalClusterError
from local_cluster.paths import cache_dir

Debian = Callable[[Path, Progress], DebianSource]
"""What Debian's packages give, in an empty workspace."""


def obtain_progress(console: Console | None = None) -> Progress:
    """What shows how far a download or a build is."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeElapsedColumn(),
        console=console or Console(stderr=True),
    )


def present_binaries(programs: Sequence[str] = CONTROL_PLANE) -> Binaries | None:
    """What `KUBEBUILDER_ASSETS` names, else what was asked of the cache last; nothing is fetched.

    Raises:
        LocalClusterError: the variable is set, and a program is missing there.
    """
    return assets_binaries(programs) or cached_binaries()


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
        address: of the releases, see `release.download_release`.
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
        try:
            return _download(version or VERSION, root, progress, address, debian)
        except ReleaseError as error:
            if version is not None:
                raise
            progress.console.print(f"{error} Building from Debian's source package instead.")
        with _workspace(root) as workspace:
            return debian(workspace, progress).build(root)


def _download(
    version: str, root: Path, progress: Progress, address: str, debian: Debian
) -> Binaries:
    with _workspace(root) as workspace:
        source = debian(workspace, progress)
        source.output.mkdir()
        download_release(version, source.output, progress, address)
        shutil.copy2(_etcd(source), source.output / "etcd")
        return publish(source.output, root, version)


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
