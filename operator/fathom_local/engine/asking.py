"""Asks a vLLM: a script that its own Python runs, JSON on stdin, JSON on the last line."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any, Final

import fathom_vllm
from fathom_local.engine.environment import EngineEnvironmentError, engine_variables
from fathom_local.engine.sources import ensure_asked_engine

_PLUGIN: Final = Path(fathom_vllm.__file__).parents[1]
"""Where vLLM's Python finds the plugin."""
_TIMEOUT_S: Final = 1200
_LAST_LINES: Final = 30


def ask(script: Path, question: object, *arguments: str, release: str) -> Any:
    """What a script answers.

    Args:
        script: run by the Python of the engine's environment.
        question: what it reads.
        arguments: of its command line.
        release: of vLLM.

    Raises:
        EngineEnvironmentError: this release cannot be had, or the script failed; with its last
            words.
    """
    engine = ensure_asked_engine(release)
    variables = {**engine_variables(engine.environment), "PYTHONPATH": str(_PLUGIN)}
    done = subprocess.run(
        [engine.python, script, *arguments],
        input=json.dumps(question),
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    if done.returncode:
        *before, last = done.stderr.splitlines() or [f"exit code {done.returncode}"]
        said = [f"{script.name} in vLLM {release}: {last}", *before[-_LAST_LINES:]]
        raise EngineEnvironmentError("\n".join(said))
    return json.loads(done.stdout.splitlines()[-1])
