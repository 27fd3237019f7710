"""The commands of `fathom local` that need an engine."""

import asyncio
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console

from local_cluster.cluster import PREREQUISITES
from local_cluster.control_plane.apt_sources import is_debian
from local_cluster.control_plane.obtain import check_obtainable, ensure_binaries
from local_cluster.demo.main import DemoOptions, run_demo
from local_cluster.demo.verdict import DemoOutcome
from local_cluster.engine.environment import DEFAULT_ENGINE_VERSION, EngineEnvironmentError
from local_cluster.engine.model_pair import ModelPairError
from local_cluster.engine.setup import ensure_engine, simulated_image
from local_cluster.errors import LocalClusterError, explained
from local_cluster.helm import find_helm
from local_cluster.images import Image
from local_cluster.network import require_root, way_past_proxies
from local_cluster.prerequisites import require_all, require_programs
from local_cluster.progress import setup_progress

PAGE: Final = Path("demo.html")
_TERMINATED: Final = 128 + signal.SIGTERM


def engine_command(
    version: Annotated[str, typer.Option(help="Which vLLM.")] = DEFAULT_ENGINE_VERSION,
) -> None:
    """Installs a real vLLM for the CPU and builds the models that it serves here."""
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
    page: Annotated[
        Path, typer.Option(help="Keep the operator's page of the resource here, one HTML file.")
    ] = PAGE,
    strict: Annotated[
        bool, typer.Option("--strict", help="Fail if the gain in speed is not clear.")
    ] = False,
) -> None:
    """The whole loop on this machine: depth follows the traffic, and how much that gains.

    Exit code 0: depth followed the traffic, no request was lost, no pod restarted. 1: it did not,
    or the demo could not run. With --strict the gain in speed counts, too: 1: tuned is slower than
    static, 3: which one is faster is not clear.
    """
    with explained():
        try:
            outcome = _demo(Console(), simulated=simulated, options=DemoOptions(page, strict))
        except asyncio.CancelledError as error:
            raise typer.Exit(_TERMINATED) from error
    if outcome is not DemoOutcome.HELD:
        raise typer.Exit(outcome.value)


def _demo(console: Console, *, simulated: bool, options: DemoOptions) -> DemoOutcome:
    require_all(
        require_root,
        partial(require_programs, PREREQUISITES),
        partial(check_obtainable, debian=is_debian()),
    )
    if way := way_past_proxies(os.environ):
        console.print(way, soft_wrap=True, highlight=False)
    return run_demo(console, _set_up(console, simulated=simulated), options)


def _set_up(console: Console, *, simulated: bool) -> tuple[Image, ...]:
    """Gets all that the demo runs, side by side; what is there already takes no time.

    Returns:
        What has to be added to the image table: the simulated engine, if it was asked for, or where
        real vLLM cannot be installed.
    """
    # One that fails keeps no other from being fetched for the next attempt.
    with setup_progress(console) as progress, ThreadPoolExecutor() as threads:
        plane = threads.submit(ensure_binaries, progress)
        helm = threads.submit(find_helm, progress)
        engine = None if simulated else threads.submit(ensure_engine, progress=progress)
    plane.result()
    helm.result()
    if engine is None:
        return (simulated_image(),)
    try:
        engine.result()
    except (EngineEnvironmentError, ModelPairError) as error:
        console.print(
            f"Real vLLM cannot be installed here: {error}\n"
            "A SIMULATED engine replaces it: what follows shows the loop, not speed.",
            soft_wrap=True,
            markup=False,
        )
        return (simulated_image(),)
    return ()
