"""What is said where a vLLM cannot be asked."""

from pathlib import Path

import pytest

from local_cluster.engine.environment import EngineEnvironmentError, mark_ready
from local_cluster.engine.script_client import imported_vllm

RELEASE = "0.99.0"


def test_the_last_words_of_a_vllm_that_cannot_be_imported_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FATHOM_CACHE_DIR", str(tmp_path))
    environment = tmp_path / f"engine-venv-{RELEASE}"
    python = environment / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text("#!/bin/sh\necho Traceback: >&2\necho ImportError: no torch >&2\nexit 1\n")
    python.chmod(0o755)
    mark_ready(environment, RELEASE)

    with (
        imported_vllm(RELEASE) as vllm,
        pytest.raises(EngineEnvironmentError) as told,
    ):
        vllm.ask(Path("probe.py"), None)

    assert str(told.value) == "probe.py in vLLM 0.99.0: ImportError: no torch\nTraceback:"
