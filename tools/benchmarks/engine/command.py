"""`python -m benchmarks engine`, the command."""

import json
from pathlib import Path
from typing import Annotated, Final

import typer

from benchmarks.engine.main import run_bench
from benchmarks.engine.parts import QUICK_PARTS, PartsPlan, parts_table, run_parts
from benchmarks.engine.tables import result_tables
from benchmarks.engine.timing import QUICK, EngineBenchTiming
from benchmarks.results import require_folder, result_console
from local_cluster.engine.environment import (
    DEFAULT_ENGINE_VERSION,
    EngineEnvironmentError,
    ensure_engine_environment,
)
from local_cluster.engine.model_pair import ModelPairError, ensure_model_pair
from local_cluster.engine.process import EngineSetup, real_setup, simulated_setup
from local_cluster.errors import LocalClusterError, explained
from local_cluster.paths import cache_dir

_WIDTH: Final = 130
_JsonFile = Annotated[Path | None, typer.Option("--json", help="Write the figures.")]
_Simulated = Annotated[
    bool, typer.Option(help="The simulated engine instead of the real one: for development.")
]


def bench_engine_command(
    *,
    json_file: _JsonFile = None,
    quick: Annotated[
        bool, typer.Option(help="Four minutes instead of 37: shows that it works, not how fast.")
    ] = False,
    simulated: _Simulated = False,
) -> None:
    """Real vLLM on this CPU: the live tuner beside every static depth, and what it costs."""
    console = result_console(_WIDTH)
    with explained():
        require_folder(json_file)
        report = run_bench(
            console,
            _engine(simulated=simulated),
            QUICK if quick else EngineBenchTiming(),
            engine="a simulated engine" if simulated else f"vLLM {DEFAULT_ENGINE_VERSION}",
            quick=quick,
        )
        if json_file is not None:
            json_file.write_text(report.model_dump_json(indent=2) + "\n")
        console.print(result_tables(report))


def bench_parts_command(
    *,
    json_file: _JsonFile = None,
    quick: Annotated[
        bool, typer.Option(help="A minute and the engines' starts: shows that it works.")
    ] = False,
    simulated: _Simulated = False,
) -> None:
    """Real vLLM on this CPU: which part of what makes an engine tunable costs what."""
    console = result_console(_WIDTH)
    with explained():
        require_folder(json_file)
        costs = run_parts(
            console,
            _engine(simulated=simulated),
            QUICK_PARTS if quick else PartsPlan(),
        )
        if json_file is not None:
            json_file.write_text(json.dumps([each.model_dump() for each in costs], indent=2) + "\n")
        console.print(parts_table(costs))


def _engine(*, simulated: bool) -> EngineSetup:
    if simulated:
        return simulated_setup()
    try:
        environment = ensure_engine_environment()
        pair = ensure_model_pair(cache_dir(), environment / "bin" / "python")
    except (EngineEnvironmentError, ModelPairError) as error:
        raise LocalClusterError(str(error)) from error
    return real_setup(environment, pair)
