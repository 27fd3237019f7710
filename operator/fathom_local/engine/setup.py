"""Everything a serving pod needs on this machine: an engine, and the pair of models."""

import shlex
import sys
from collections.abc import Callable
from pathlib import Path

from fathom_local.engine.environment import (
    DEFAULT_ENGINE_VERSION,
    EngineEnvironmentError,
    ensure_engine_environment,
    say,
)
from fathom_local.engine.model_pair import ModelPairError, ensure_model_pair
from fathom_local.images import ENGINE_REPOSITORY, Image
from fathom_local.paths import cache_dir

Say = Callable[[str], None]


def ensure_engine(version: str = DEFAULT_ENGINE_VERSION, progress: Say = say) -> None:
    """Real vLLM and the constructed pair, in the cache. Idempotent.

    Raises:
        EngineEnvironmentError, ModelPairError: with a sentence on what failed and what to do.
    """
    environment = ensure_engine_environment(cache_dir(), version, progress)
    ensure_model_pair(cache_dir(), environment / "bin" / "python")


def engine_images(progress: Say = say) -> tuple[Image, ...]:
    """What has to be added to the image table so that the engine's image runs here.

    Nothing where real vLLM can be installed. Elsewhere it says so, and the simulated engine,
    which speaks the same endpoints and metrics, stands in.
    """
    try:
        ensure_engine(progress=progress)
    except (EngineEnvironmentError, ModelPairError) as error:
        progress(f"Real vLLM cannot be installed here: {error}")
        progress("A SIMULATED engine stands in for it: what follows shows the loop, not speed.")
        return (simulated_image(),)
    return ()


def simulated_image() -> Image:
    """The engine's image, run by the simulated engine."""
    scripts = cache_dir() / "simulated-engine" / "bin"
    scripts.mkdir(parents=True, exist_ok=True)
    command = scripts / "vllm"
    sources = Path(__file__).parents[2]
    command.write_text(
        "#!/bin/sh\n"
        f'PYTHONPATH="{sources}${{PYTHONPATH:+:$PYTHONPATH}}" '
        f'exec {shlex.quote(sys.executable)} -m fathom_local.engine.simulated "$@"\n'
    )
    command.chmod(0o755)
    return Image(
        repository=ENGINE_REPOSITORY,
        default_version=DEFAULT_ENGINE_VERSION,
        entrypoint=("vllm", "serve"),
        path_prefix=(scripts,),
        keeps=(scripts, Path(sys.prefix), Path(sys.base_prefix), sources),
    )
