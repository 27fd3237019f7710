"""Everything a serving pod needs on this machine: an engine, and the pair of models."""

import json
import os
import shlex
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

from rich.progress import Progress

from local_cluster.engine.environment import (
    DEFAULT_ENGINE_VERSION,
    engine_variables,
    ensure_engine_environment,
    model_cache,
)
from local_cluster.engine.model_pair import (
    ModelPair,
    ensure_model_pair,
    pair_directory,
)
from local_cluster.images import ENGINE_REPOSITORY, Image
from local_cluster.paths import PYTHON_PATH, SOURCES, cache_dir
from local_cluster.progress import progress_or_new

_LOOK: Final = """
import json, sys
from vllm.engine.arg_utils import EngineArgs

model, speculative = sys.argv[1:]
EngineArgs(model=model, speculative_config=json.loads(speculative)).create_engine_config()
"""
_LOOK_TIMEOUT_S: Final = 600


def ensure_engine(version: str = DEFAULT_ENGINE_VERSION, progress: Progress | None = None) -> None:
    """Real vLLM and the constructed pair, in the cache. Idempotent.

    Args:
        version: which vLLM.
        progress: where to show what is being done; on stderr when None.

    Raises:
        EngineEnvironmentError, ModelPairError: with a sentence on what failed and what to do.
    """
    environment = ensure_engine_environment(cache_dir(), version, progress)
    if pair_directory(cache_dir()).is_dir() and _remembered(environment):
        return
    with progress_or_new(progress) as shown:
        task = shown.add_task("Models: writing the pair, and loading it once", total=None)
        pair = ensure_model_pair(cache_dir(), environment / "bin" / "python")
        remember_models(environment, pair)
        shown.update(task, total=1, completed=1)


def _remembered(environment: Path) -> bool:
    return any(model_cache(environment).glob("modelinfos/*.json"))


def remember_models(environment: Path, pair: ModelPair) -> None:
    """Let vLLM look at the pair's classes once, where every later start finds what it saw.

    It imports itself in another process for each class that it does not know, which is half of a
    start's work; a pod would do so at each start, since what it writes is gone with it. Where the
    look fails, engines look for themselves.
    """
    if _remembered(environment):
        return
    speculative = {"method": "eagle3", "model": str(pair.draft), "num_speculative_tokens": 1}
    with suppress(OSError, subprocess.SubprocessError):
        subprocess.run(
            [environment / "bin" / "python", "-c", _LOOK, pair.target, json.dumps(speculative)],
            env={**os.environ, **engine_variables(environment)},
            capture_output=True,
            timeout=_LOOK_TIMEOUT_S,
            check=False,
        )


def simulated_image() -> Image:
    """The engine's image, run by the simulated engine."""
    scripts = cache_dir() / "simulated-engine" / "bin"
    scripts.mkdir(parents=True, exist_ok=True)
    command = scripts / "vllm"
    command.write_text(
        "#!/bin/sh\n"
        f'PYTHONPATH="{PYTHON_PATH}${{PYTHONPATH:+:$PYTHONPATH}}" '
        f'exec {shlex.quote(sys.executable)} -m local_cluster.engine.simulated "$@"\n'
    )
    command.chmod(0o755)
    return Image(
        repository=ENGINE_REPOSITORY,
        default_version=DEFAULT_ENGINE_VERSION,
        entrypoint=("vllm", "serve"),
        path_prefix=(scripts,),
        keeps=(scripts, Path(sys.prefix), Path(sys.base_prefix), *SOURCES),
    )
