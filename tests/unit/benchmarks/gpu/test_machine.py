"""What is said before anything runs."""

import json
from pathlib import Path

import pytest

from benchmarks.gpu.machine import Machine, gpu_machine
from local_cluster.errors import LocalClusterError

CPU = "make bench-gpu ARGS=--cpu"


def environment(directory: Path, answer: str, *, vllm: bool = True) -> Path:
    """One whose Python answers with this."""
    binaries = directory / "bin"
    binaries.mkdir()
    python = binaries / "python"
    python.write_text(f"#!/bin/sh\n{answer}\n")
    python.chmod(0o755)
    if vllm:
        (binaries / "vllm").touch()
    return directory


def saying(version: str, gpu: str, capability: int) -> str:
    answer = json.dumps({"vllm": version, "gpu": gpu, "capability": capability})
    return f"echo WARNING; echo '{answer}'"


def test_without_a_python_it_says_how_to_name_one_and_how_to_do_without() -> None:
    with pytest.raises(LocalClusterError, match=rf"VLLM_PYTHON=/path.*vllm==0.32.0.*{CPU}"):
        gpu_machine(None)


def test_without_a_gpu_it_says_so_and_how_to_do_without(tmp_path: Path) -> None:
    python = environment(tmp_path, saying("0.32.0", "", 0))
    with pytest.raises(LocalClusterError, match=rf"has vLLM 0.32.0 and sees no GPU.*{CPU}"):
        gpu_machine(python)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ("echo 'No module named torch' >&2; exit 1", "no vLLM that starts: No module named torch"),
        ("echo nonsense", "cannot be asked for its vLLM"),
        ("true", "cannot be asked for its vLLM"),
        ("echo '{}'", "cannot be asked for its vLLM"),
    ],
)
def test_a_python_without_vllm_is_told(tmp_path: Path, answer: str, said: str) -> None:
    with pytest.raises(LocalClusterError, match=said):
        gpu_machine(environment(tmp_path, answer))


def test_a_python_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(LocalClusterError, match="cannot be asked for its vLLM"):
        gpu_machine(tmp_path / "nowhere")


def test_an_environment_and_its_interpreter_are_the_same(tmp_path: Path) -> None:
    directory = environment(tmp_path, saying("0.32.0", "NVIDIA B200", 10))
    machine = gpu_machine(directory)

    assert machine == gpu_machine(directory / "bin" / "python")
    assert machine.accelerator == "B200"
    assert machine.name == "vLLM 0.32.0 on NVIDIA B200"


def test_a_vllm_without_its_command_is_told(tmp_path: Path) -> None:
    python = environment(tmp_path, saying("0.32.0", "NVIDIA H100", 9), vllm=False)
    with pytest.raises(LocalClusterError, match="bin/vllm is missing"):
        gpu_machine(python)


@pytest.mark.parametrize(
    ("capability", "accelerator"), [(8, "H100"), (9, "H100"), (10, "B200"), (12, "H100")]
)
def test_sizes_of_graphs_are_those_of_data_centre_blackwell_there_alone(
    capability: int, accelerator: str
) -> None:
    machine = Machine(vllm="0.32.0", gpu="a GPU", capability=capability, python=Path("python"))
    assert machine.accelerator == accelerator
