"""A vLLM that answers questions, of any release: where none is built for the CPU, its Python files.

They parse, configure and schedule as the whole release does, with the libraries of the release that
is tested most. They run no model: nothing in them is compiled.
"""

import shutil
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich.progress import Progress

from local_cluster.engine.environment import (
    EngineEnvironmentError,
    ensure_engine_environment,
    is_ready,
    locked,
    mark_ready,
    name_distribution,
    run_step,
)
from local_cluster.paths import cache_dir
from local_cluster.progress import progress_or_new

_READ_BY_PYTHON: Final = frozenset({".py", ".json", ".jinja"})


@dataclass(frozen=True, slots=True)
class AskedEngine:
    """A virtual environment whose vLLM answers questions."""

    environment: Path
    serves: bool
    """Whether it runs models, too."""

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.environment / "bin" / "python"


def ensure_asked_engine(
    version: str, cache: Path | None = None, progress: Progress | None = None
) -> AskedEngine:
    """Release `version`: its build for the CPU if there is one, else its wheel's Python files.

    Idempotent, as `ensure_engine_environment` is.

    Raises:
        EngineEnvironmentError: neither can be had; with a sentence on both.
    """
    cache = cache or cache_dir()
    sources = cache / f"engine-sources-{version}"
    if is_ready(sources, version):
        return AskedEngine(sources, serves=False)
    try:
        return AskedEngine(ensure_engine_environment(cache, version, progress), serves=True)
    except EngineEnvironmentError as error:
        no_build = error
    libraries = ensure_engine_environment(cache, progress=progress)
    with locked(sources.with_name(f"{sources.name}.lock")):
        if not is_ready(sources, version):
            try:
                with progress_or_new(progress) as shown:
                    task = shown.add_task(f"vLLM {version}: its Python files alone", total=None)
                    _unpack(sources, version, libraries)
                    shown.update(task, total=1, completed=1)
            except EngineEnvironmentError as error:
                raise EngineEnvironmentError(f"{error}\nNor {no_build}") from error
            mark_ready(sources, version)
    return AskedEngine(sources, serves=False)


def _unpack(directory: Path, version: str, libraries: Path) -> None:
    shutil.rmtree(directory, ignore_errors=True)
    run_step(
        [sys.executable, "-m", "venv", "--without-pip", str(directory)],
        "create a virtual environment (on Debian: apt-get install python3-venv)",
    )
    wheels = directory / "wheels"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    run_step(
        [
            *(*pip, "download", "--progress-bar", "off", "--no-deps", "--only-binary", ":all:"),
            *("--dest", str(wheels), f"vllm=={version}"),
        ],
        f"download the wheel of vllm {version}",
    )
    packages = _packages(directory)
    with zipfile.ZipFile(next(wheels.glob("vllm-*.whl"))) as wheel:
        for name in wheel.namelist():
            if name.startswith("vllm/") and Path(name).suffix in _READ_BY_PYTHON:
                wheel.extract(name, packages)
    shutil.rmtree(wheels)
    name_distribution(directory, version)
    # After this environment's own folder: only what is not in it is found there.
    (packages / "libraries.pth").write_text(f"{_packages(libraries)}\n")


def _packages(environment: Path) -> Path:
    return next(environment.glob("lib/python3.*/site-packages"))
