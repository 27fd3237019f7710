"""Asks a real vLLM: a script that its own Python runs, JSON on stdin, JSON on the last line."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

import fathom_vllm
from fathom_local.engine.environment import DEFAULT_ENGINE_VERSION, engine_variables
from fathom_local.engine.sources import ensure_asked_engine

PLUGIN = Path(fathom_vllm.__file__).parents[1]
"""Where vLLM's Python finds the plugin."""
TIMEOUT_S = 1200


def ask_vllm(
    probe: Path, question: object, *arguments: str, release: str = DEFAULT_ENGINE_VERSION
) -> Any:
    """What a probe answers; one process, since importing vLLM takes longer than most questions.

    Args:
        probe: the script.
        question: what it reads.
        arguments: of its command line.
        release: of vLLM.
    """
    engine = ensure_asked_engine(release)
    variables = {**engine_variables(engine.environment), "PYTHONPATH": str(PLUGIN)}
    done = subprocess.run(
        [engine.python, probe, *arguments],
        input=json.dumps(question),
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    if done.returncode:
        *before, last = done.stderr.splitlines() or [f"exit code {done.returncode}"]
        pytest.fail(
            "\n".join([f"{probe.name} in vLLM {release}: {last}", *before[-30:]]), pytrace=False
        )
    return json.loads(done.stdout.splitlines()[-1])
