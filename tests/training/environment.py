"""speculators on the CPU, in an environment of its own that has the engine's below it."""

import hashlib
import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich.progress import Progress

from local_cluster.engine.environment import (
    CONSTRAINTS,
    EngineEnvironmentError,
    ensure_engine_environment,
    locked,
    run_step,
)
from local_cluster.images import Image
from local_cluster.paths import REPOSITORY, cache_dir
from local_cluster.progress import progress_or_new

PINNED: Final = REPOSITORY / "constraints-training.txt"
COST: Final = "300 MB of disk and 20 s where packages come quickly"
SHIMS: Final = Path(__file__).parent / "shims"
"""What speculators and vLLM need on a machine without an accelerator. No user runs it."""
IMAGE: Final = "fathom.local/speculators"
"""How a pod of the local cluster names this environment."""
_MARKER: Final = "fathom-ready"
_NOT_NEEDED: Final = ("speculators", "hs-connectors")
"""Installed without what they require: the engine's environment has it, but for torchvision and
torchaudio, which are imported for pictures and sound alone."""


@dataclass(frozen=True, slots=True)
class TrainingEnvironment:
    """Where speculators and the vLLM that it asks are installed."""

    directory: Path
    engine: Path

    @property
    def path(self) -> str:
        """`PATH` for a trainer's commands: the shims come first."""
        folders = (SHIMS / "bin", self.directory / "bin", self.engine / "bin")
        return os.pathsep.join([*map(str, folders), os.environ["PATH"]])

    def image(self) -> Image:
        """What stands in for the image of a trainer in the local cluster."""
        return Image(
            repository=IMAGE,
            path_prefix=(SHIMS / "bin", self.directory / "bin", self.engine / "bin"),
            env=trainer_variables(),
            requires=(self.directory / _MARKER,),
            hint="Install it with `make draft-train`.",
            keeps=(SHIMS, self.directory, self.engine, Path(sys.base_prefix)),
        )


def trainer_variables() -> dict[str, str]:
    """Environment variables of a trainer on this machine, besides `PATH`."""
    return {
        "PYTHONPATH": str(SHIMS),
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        # Threads that wait do not spin: others need the processors.
        "OMP_WAIT_POLICY": "passive",
    }


def ensure_training_environment(
    cache: Path | None = None, progress: Progress | None = None
) -> TrainingEnvironment:
    """The environment, installed if it is not there. Idempotent; a second process waits.

    Args:
        cache: the cache directory; the usual one when None.
        progress: where to show what is being done; on stderr when None.

    Raises:
        EngineEnvironmentError: with a sentence on what failed and what to do.
    """
    engine = ensure_engine_environment(cache)
    directory = (cache or cache_dir()) / "training-venv"
    with locked(directory.with_name(f"{directory.name}.lock")):
        marker = directory / _MARKER
        if not marker.is_file() or marker.read_text() != _key(engine):
            try:
                with progress_or_new(progress) as shown:
                    _install(directory, engine, shown)
            except EngineEnvironmentError:
                shutil.rmtree(directory, ignore_errors=True)
                raise
            marker.write_text(_key(engine))
    return TrainingEnvironment(directory, engine)


def _key(engine: Path) -> str:
    digest = hashlib.sha256(PINNED.read_bytes() + CONSTRAINTS.read_bytes()).hexdigest()
    return f"{engine} {sys.version_info.major}.{sys.version_info.minor} {digest}\n"


def _install(directory: Path, engine: Path, progress: Progress) -> None:
    pinned = [line for line in PINNED.read_text().splitlines() if "==" in line]
    alone = [line for line in pinned if line.partition("==")[0] in _NOT_NEEDED]
    task = progress.add_task(f"speculators: {COST}", total=3)
    shutil.rmtree(directory, ignore_errors=True)
    run_step([sys.executable, "-m", "venv", str(directory)], "create a virtual environment")
    packages = next(directory.glob("lib/python3.*/site-packages"))
    below = next(engine.glob("lib/python3.*/site-packages"))
    (packages / "engine.pth").write_text(f"{below}\n")
    progress.advance(task)
    pip = [str(directory / "bin" / "python"), "-m", "pip", "install", "--progress-bar", "off"]
    run_step([*pip, "--no-deps", *alone], "install speculators")
    progress.advance(task)
    rest = [line for line in pinned if line not in alone]
    run_step([*pip, "--only-binary", ":all:", *rest], "install what speculators requires")
    progress.advance(task)
