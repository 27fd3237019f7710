"""What the benchmark runs on: a vLLM with a GPU that the user names, or the one for the CPU."""

import json
import subprocess
from pathlib import Path
from typing import Final

from pydantic import BaseModel, ConfigDict, ValidationError

from fathom.api.accelerators import DATA_CENTRE_BLACKWELL
from fathom.api.choices import Accelerator
from local_cluster.engine.environment import (
    DEFAULT_ENGINE_VERSION,
    EngineEnvironmentError,
    ensure_engine_environment,
)
from local_cluster.errors import LocalClusterError

ON_THE_CPU: Final = "make bench-gpu ARGS=--cpu"
"""What runs everything without a GPU."""
_ASK_TIMEOUT_S: Final = 300
_ASK: Final = """
import json, torch
from importlib.metadata import version

gpu = torch.cuda.is_available()
print(json.dumps({
    "vllm": version("vllm"),
    "gpu": torch.cuda.get_device_name(0) if gpu else "",
    "capability": torch.cuda.get_device_capability(0)[0] if gpu else 0,
}))
"""


class Machine(BaseModel):
    """A vLLM and what it runs on."""

    model_config = ConfigDict(frozen=True)

    vllm: str
    """Its version."""
    gpu: str
    """Its name; empty: there is none."""
    capability: int
    """CUDA's major version of the GPU."""
    python: Path
    """The interpreter that vLLM is installed for."""

    @property
    def accelerator(self) -> Accelerator:
        """Whose sizes of graphs vLLM would choose: they differ by the major version alone."""
        blackwell = self.capability == DATA_CENTRE_BLACKWELL
        return Accelerator.B200 if blackwell else Accelerator.H100

    @property
    def name(self) -> str:
        """For the report."""
        return f"vLLM {self.vllm} on {self.gpu or 'the CPU'}"


def cpu_machine() -> Machine:
    """This machine's processors, with the vLLM that is installed for them.

    Raises:
        LocalClusterError: it cannot be installed.
    """
    try:
        environment = ensure_engine_environment()
    except EngineEnvironmentError as error:
        raise LocalClusterError(str(error)) from error
    python = environment / "bin" / "python"
    return Machine(vllm=DEFAULT_ENGINE_VERSION, gpu="", capability=0, python=python)


def gpu_machine(python: Path | None) -> Machine:
    """The GPU that a Python with vLLM sees.

    Args:
        python: an interpreter, or the environment that it is in; None: the user named none.

    Raises:
        LocalClusterError: there is none; the sentence says what to do.
    """
    if python is None:
        raise LocalClusterError(
            "Name the Python that has vLLM and sees a GPU: make bench-gpu "
            f"VLLM_PYTHON=/path/to/venv (pip install vllm=={DEFAULT_ENGINE_VERSION} into it). "
            f"Without a GPU, {ON_THE_CPU} runs the same on vLLM for the CPU, where no CUDA graph "
            "is captured."
        )
    # Not every shell expands it behind `=`. Not resolved: an environment's interpreter is a link.
    python = python.expanduser()
    interpreter = python / "bin" / "python" if python.is_dir() else python
    machine = _asked(interpreter)
    if not machine.gpu:
        raise LocalClusterError(
            f"{interpreter} has vLLM {machine.vllm} and sees no GPU. Without one, {ON_THE_CPU} "
            "runs the same on vLLM for the CPU, where no CUDA graph is captured."
        )
    if not machine.python.with_name("vllm").is_file():
        raise LocalClusterError(
            f"{machine.python.with_name('vllm')} is missing: name the Python of an environment "
            "into which vLLM was installed with pip."
        )
    return machine


def _asked(interpreter: Path) -> Machine:
    try:
        done = subprocess.run(
            [interpreter, "-c", _ASK],
            capture_output=True,
            text=True,
            timeout=_ASK_TIMEOUT_S,
            check=True,
        )
        answer = json.loads(done.stdout.splitlines()[-1])
        return Machine(**answer, python=interpreter)
    except subprocess.CalledProcessError as error:
        last = error.stderr.strip().rpartition("\n")[2]
        raise LocalClusterError(f"{interpreter} has no vLLM that starts: {last}") from error
    except (OSError, subprocess.TimeoutExpired, ValueError, IndexError, ValidationError) as error:
        raise LocalClusterError(f"{interpreter} cannot be asked for its vLLM: {error}") from error
