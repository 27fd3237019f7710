"""Downloads the Kubernetes project's own programs of one release.

Each comes with a SHA-256 sum; a program that differs from it is never run.
"""

import hashlib
import platform
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class ReleasedProgram:
    """One program of a release: where it is, and its SHA-256 sum."""

    name: str
    url: str
    sum: str


def released_programs(version: str, address: str) -> tuple[ReleasedProgram, ...]:
    """The programs of a release, each with its sum; none of them is fetched.

    Args:
        version: such as 1.36.2.
        address: of the releases; below it is `v1.36.2/bin/linux/amd64/kubectl` and the like.

    Raises:
        ReleaseError: this machine's architecture is not released, or the server cannot be reached
            or lacks a program.
    """
    architecture = ARCHITECTURES.get(platform.machine())
    if architecture is None:
        raise ReleaseError(f"Kubernetes releases no programs for {platform.machine()}.")
    folder = f"{address}/v{version}/bin/linux/{architecture}"
    with _client() as client:
        return tuple(
            ReleasedProgram(name, f"{folder}/{name}", _sum(client, f"{folder}/{name}"))
            for name in KUBERNETES
        )


def download_programs(
    programs: Sequence[ReleasedProgram], folder: Path, progress: Progress
) -> None:
    """Puts a release's programs into a folder, but for those that it has.

    Raises:
        ReleaseError: the server cannot be reached, or what came is not what the sum says.
    """
    with _client() as client:
        for program in programs:
            target = folder / program.name
            if target.is_file() and _sha256(target) == program.sum:
                continue
            task = progress.add_task(f"Kubernetes: downloading {program.name}", total=None)
            with _explained(program.url):
                _download(client, program, target, progress, task)


def _client() -> httpx.Client:
    return httpx.Client(timeout=TIMEOUT, follow_redirects=True)


@contextmanager
def _explained(url: str) -> Iterator[None]:
    try:
        yield
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise ReleaseError(f"{url} cannot be fetched: {error}.") from error


def _sum(client: httpx.Client, url: str) -> str:
    with _explained(url):
        words = client.get(f"{url}.sha256").raise_for_status().text.split()
    return words[0] if words else ""


def _sha256(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _download(
    client: httpx.Client,
    program: ReleasedProgram,
    target: Path,
    progress: Progress,
    task: TaskID,
) -> None:
    with client.stream("GET", program.url) as response, target.open("wb") as file:
        response.raise_for_status()
        size = response.headers.get("Content-Length")
        progress.update(task, total=int(size) if size else None)
        for chunk in response.iter_bytes():
            file.write(chunk)
            progress.advance(task, len(chunk))
    if (found := _sha256(target)) != program.sum:
        target.unlink()
        raise ReleaseError(
            f"{program.url} came with the SHA-256 sum {found}, and {program.url}.sha256 says "
            f"{program.sum[:80] or 'nothing'}. It was not used."
        )
    target.chmod(0o755)
    progress.update(task, total=1, completed=1)
