"""Downloads the Kubernetes project's own programs of one release.

Each comes with a SHA-256 sum; a program that differs from it is never run.
"""

import hashlib
import platform
from pathlib import Path

import httpx
from rich.progress import Progress, TaskID

from local_cluster.control_plane.binaries import KUBERNETES
from local_cluster.errors import LocalClusterError

VERSION = "1.36.2"
"""What is downloaded unless another is asked for: of those that docs/requirements.md supports, the
newest that the tests ran on."""
ADDRESS = "https://dl.k8s.io/release"
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
TIMEOUT = httpx.Timeout(30.0, connect=10.0)


class ReleaseError(LocalClusterError):
    """The release cannot be had from here."""


def download_release(version: str, folder: Path, progress: Progress, address: str) -> None:
    """Puts a release's programs into a folder.

    Args:
        version: such as 1.36.2.
        folder: where to.
        progress: where to show how far it is.
        address: of the releases; below it lies `v1.36.2/bin/linux/amd64/kubectl` and the like.

    Raises:
        ReleaseError: this machine's architecture is not released, the server cannot be reached or
            lacks a program, or what came is not what the sum says.
    """
    architecture = ARCHITECTURES.get(platform.machine())
    if architecture is None:
        raise ReleaseError(f"Kubernetes releases no programs for {platform.machine()}.")
    with httpx.Client(timeout=TIMEOUT, follow_redirects=True) as client:
        for name in KUBERNETES:
            url = f"{address}/v{version}/bin/linux/{architecture}/{name}"
            task = progress.add_task(f"Downloading {name} {version}", total=None)
            try:
                _download(client, url, folder / name, progress, task)
            except (httpx.HTTPError, httpx.InvalidURL) as error:
                raise ReleaseError(f"{url} cannot be had: {error}") from error


def _download(
    client: httpx.Client, url: str, target: Path, progress: Progress, task: TaskID
) -> None:
    expected = client.get(f"{url}.sha256").raise_for_status().text.split()
    digest = hashlib.sha256()
    with client.stream("GET", url) as response, target.open("wb") as file:
        response.raise_for_status()
        size = response.headers.get("Content-Length")
        progress.update(task, total=int(size) if size else None)
        for chunk in response.iter_bytes():
            file.write(chunk)
            digest.update(chunk)
            progress.advance(task, len(chunk))
    if expected[:1] != [digest.hexdigest()]:
        raise ReleaseError(
            f"{url} came with the SHA-256 sum {digest.hexdigest()}, and {url}.sha256 says "
            f"{' '.join(expected)[:80] or 'nothing'}. It was not used."
        )
    target.chmod(0o755)
    progress.update(task, total=1, completed=1)
