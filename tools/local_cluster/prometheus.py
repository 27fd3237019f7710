"""Prometheus for tests and benchmarks: on PATH, else Debian's package, unpacked, not installed.

Installing the package would start a server of its own on the machine.
"""

import json
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from pydantic import JsonValue

from local_cluster.control_plane.apt_sources import write_private_sources
from local_cluster.engine.process import free_port
from local_cluster.errors import LocalClusterError
from local_cluster.paths import cache_dir

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


@contextmanager
def prometheus_process(
    every_ms: int,
    jobs: Sequence[Mapping[str, JsonValue]],
    folder: Path,
    *,
    web: Path | None = None,
) -> Iterator[str]:
    """One that scrapes as often as that; its URL. It may not answer yet.

    Args:
        every_ms: between two scrapes.
        jobs: its `scrape_configs`.
        folder: for its files.
        web: its web configuration, with its certificate and users; None: it speaks plain HTTP.

    Raises:
        LocalClusterError: there is none, and none can be had.
    """
    config, every = folder / "prometheus.json", f"{every_ms}ms"
    timing: JsonValue = {"scrape_interval": every, "scrape_timeout": every}
    # JSON is YAML.
    config.write_text(json.dumps({"global": timing, "scrape_configs": [*map(dict, jobs)]}))
    port = free_port()
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(
            [
                find_prometheus(),
                f"--config.file={config}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{port}",
                *([] if web is None else [f"--web.config.file={web}"]),
            ],
            stdout=log,
            stderr=log,
        )
    try:
        yield f"{'http' if web is None else 'https'}://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


def _run(command: list[str], folder: Path | None = None) -> None:
    subprocess.run(
        command, cwd=folder, timeout=_SECONDS, check=True, capture_output=True, text=True
    )
