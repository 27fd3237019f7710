"""Prometheus for tests: the machine's own, else Debian's package, unpacked and not installed.

Installing the package would start a server of its own on the machine.
"""

import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from fathom_local.control_plane.apt_sources import write_private_sources
from fathom_local.errors import LocalClusterError
from fathom_local.paths import cache_dir

_SECONDS: Final = 600.0


def find_prometheus() -> Path:
    """The `prometheus` program.

    Raises:
        LocalClusterError: there is none, and Debian's package cannot be had.
    """
    if (installed := shutil.which("prometheus")) is not None:
        return Path(installed)
    folder = cache_dir() / "prometheus"
    program = folder / "usr" / "bin" / "prometheus"
    if program.is_file():
        return program
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        new = Path(scratch) / "new"
        apt = write_private_sources(Path(scratch) / "apt")
        try:
            for command in ([*apt, "update"], [*apt, "download", "prometheus"]):
                _run(command, Path(scratch))
            _run(["dpkg", "-x", *map(str, Path(scratch).glob("prometheus_*.deb")), str(new)])
            new.rename(folder)
        except (OSError, subprocess.SubprocessError) as error:
            if not program.is_file():  # else another process was faster
                raise LocalClusterError(
                    f"Prometheus cannot be had: {error}. Put `prometheus` on PATH, "
                    "or install it with: apt-get install prometheus"
                ) from error
    return program


def find_promtool() -> Path:
    """The `promtool` program, which comes with Prometheus.

    Raises:
        LocalClusterError: there is none beside `prometheus`, or Prometheus cannot be had.
    """
    if (installed := shutil.which("promtool")) is not None:
        return Path(installed)
    program = find_prometheus().with_name("promtool")
    if not program.is_file():
        raise LocalClusterError(
            f"There is no `promtool` in {program.parent}, beside `prometheus`. Put it there: "
            "Prometheus' releases and Debian's package hold both."
        )
    return program


def _run(command: list[str], folder: Path | None = None) -> None:
    subprocess.run(
        command, cwd=folder, timeout=_SECONDS, check=True, capture_output=True, text=True
    )
