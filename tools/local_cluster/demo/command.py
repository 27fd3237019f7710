"""The commands of `fathom local` that need an engine."""

import asyncio
import signal
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console

from local_cluster.control_plane.obtain import (
    ensure_binaries,
    obtain_progress,
    present_binaries,
)
from local_cluster.demo.main import DemoFiles, run_demo
from local_cluster.demo.phases import DemoTiming
from local_cluster.demo.verdict import DemoOutcome, code_of
from local_cluster.engine.environment import DEFAULT_ENGINE_VERSION, EngineEnvironmentError
from local_cluster.engine.model_pair import ModelPairError
from local_cluster.engine.setup import engine_images, ensure_engine, simulated_image
from local_cluster.errors import LocalClusterError, explained
from local_cluster.helm import find_helm

PAGE: Final = Path("demo.html")
PICTURES: Final = (".svg", ".png", ".pdf")
_TERMINATED: Final = 128 + signal.SIGTERM


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
    simulated: Annotated[
        bool, typer.Option(help="The simulated engine, even where real vLLM is installed.")
    ] = False,
    plot: Annotated[
        Path | None,
        typer.Option(help="Write the result as a picture here: .svg, .png or .pdf."),
    ] = None,
    page: Annotated[
        Path, typer.Option(help="Keep the operator's page of the resource here, one HTML file.")
    ] = PAGE,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with 3 where the machine is too noisy to tell.")
    ] = False,
) -> None:
    """The whole loop on this machine: live depth against static depth, with a verdict.

    Exit code 0: nothing was refuted. 1: the tuner is slower or brings nothing, a request or a pod
    was lost, or the demo could not run. 3: with --strict, the machine is too noisy to tell.
    """
    with explained():
        try:
            outcome = _demo(Console(), simulated=simulated, files=DemoFiles(plot, page))
        except asyncio.CancelledError as error:
            raise typer.Exit(_TERMINATED) from error
    if exit_code := code_of(outcome, strict=strict):
        raise typer.Exit(exit_code)


def _demo(console: Console, *, simulated: bool, files: DemoFiles) -> DemoOutcome:
    plot = files.plot
    if plot is not None and plot.suffix not in PICTURES:
        raise LocalClusterError(f"--plot {plot}: end it in one of {', '.join(PICTURES)}.")
    if present_binaries() is None:
        console.print("Setting up (once): the control plane")
        with obtain_progress(console) as progress:
            ensure_binaries(progress)
    find_helm()
    images = (simulated_image(),) if simulated else engine_images(console.print)
    return run_demo(console, DemoTiming(), images, files)
