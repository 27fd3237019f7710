"""The commands of `fathom local` that need an engine."""

from typing import Annotated

import typer
from rich.console import Console

from fathom_local.binaries import built_binaries
from fathom_local.build import build_progress, ensure_binaries
from fathom_local.demo.main import run_demo
from fathom_local.demo.phases import Timing
from fathom_local.engine.environment import DEFAULT_ENGINE_VERSION, EngineEnvironmentError
from fathom_local.engine.model_pair import ModelPairError
from fathom_local.engine.setup import engine_images, ensure_engine, simulated_image
from fathom_local.errors import LocalClusterError
from fathom_local.explained import explained
from fathom_local.tools.helm import find_helm

_FAILED = 1
_QUICK = Timing(adapt_seconds=45, pairs=4, sweep_rounds=1)


def engine_command(
    version: Annotated[str, typer.Option(help="Which vLLM.")] = DEFAULT_ENGINE_VERSION,
) -> None:
    """Installs a real vLLM for the CPU and builds the EAGLE 3.1 pair that it serves here."""
    with explained():
        try:
            ensure_engine(version)
        except (EngineEnvironmentError, ModelPairError) as error:
            raise LocalClusterError(str(error)) from error


def demo_command(
    *,
    quick: Annotated[
        bool, typer.Option(help="Fewer and shorter slices: wider intervals, half the time.")
    ] = False,
    simulated: Annotated[
        bool, typer.Option(help="The simulated engine, even where real vLLM is installed.")
    ] = False,
) -> None:
    """The whole loop on this machine: live depth against static depth, with a verdict."""
    with explained():
        holds = _demo(Console(), simulated=simulated, timing=_QUICK if quick else Timing())
    if not holds:
        raise typer.Exit(_FAILED)


def _demo(console: Console, *, simulated: bool, timing: Timing) -> bool:
    if built_binaries() is None:
        console.print("Setting up (once): the control plane, from Debian's source package")
        with build_progress(console) as progress:
            ensure_binaries(progress)
    find_helm()
    images = (simulated_image(),) if simulated else engine_images(console.print)
    return run_demo(console, timing, images)
