"""`python -m benchmarks gpu`, the command."""

from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console

from benchmarks.gpu.arms import GPU_SHAPE, depths_of, race_setups
from benchmarks.gpu.machine import Machine, cpu_machine, gpu_machine
from benchmarks.gpu.main import run_bench
from benchmarks.gpu.plan import ON_A_GPU, ON_THE_CPU, quick
from benchmarks.gpu.race import ON_A_GPU as RACE_ON_A_GPU
from benchmarks.gpu.race import ON_THE_CPU as RACE_ON_THE_CPU
from benchmarks.gpu.race import quick_race, race_table, run_race
from benchmarks.gpu.report import claims
from benchmarks.gpu.tables import result_tables
from benchmarks.results import require_folder, result_console
from local_cluster.engine.model_pair import SMALL, ModelPair, ModelPairError, ensure_model_pair
from local_cluster.errors import LocalClusterError, explained
from local_cluster.paths import cache_dir

_WIDTH: Final = 130


def bench_gpu_command(
    *,
    python: Annotated[
        Path | None, typer.Option(help="A Python with vLLM, or its environment.")
    ] = None,
    cpu: Annotated[
        bool, typer.Option("--cpu", help="On vLLM for the CPU, where no CUDA graph is captured.")
    ] = False,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the figures.")] = None,
    brief: Annotated[
        bool, typer.Option("--quick", help="Shows that it works, not how fast.")
    ] = False,
    race: Annotated[
        bool,
        typer.Option("--race", help="The tuner against fixed depths and vLLM's own ways instead."),
    ] = False,
) -> None:
    """Live depth on a GPU: obeyed by each step, its graphs, its tokens, its price; fails if not."""
    console = result_console(_WIDTH)
    with explained():
        require_folder(json_file)
        machine = cpu_machine() if cpu else gpu_machine(python)
        try:
            shape = GPU_SHAPE if machine.gpu else SMALL
            pair = ensure_model_pair(cache_dir(), machine.python, shape)
        except ModelPairError as error:
            raise LocalClusterError(str(error)) from error
        if race:
            _race(console, machine, pair, json_file, brief=brief)
            return
        plan = ON_A_GPU if machine.gpu else ON_THE_CPU
        report = run_bench(console, machine, pair, quick(plan) if brief else plan, quick=brief)
        if json_file is not None:
            json_file.write_text(report.model_dump_json(indent=2) + "\n")
        console.print(result_tables(report))
    if not all(claim.holds for claim in claims(report)):
        raise typer.Exit(1)


def _race(
    console: Console, machine: Machine, pair: ModelPair, json_file: Path | None, *, brief: bool
) -> None:
    plan = RACE_ON_A_GPU if machine.gpu else RACE_ON_THE_CPU
    report = run_race(
        console,
        machine.name,
        race_setups(machine, pair),
        depths_of(machine, pair),
        quick_race(plan) if brief else plan,
        quick=brief,
    )
    if json_file is not None:
        json_file.write_text(report.model_dump_json(indent=2) + "\n")
    console.print(race_table(report))
    if report.requests_wrong:
        raise typer.Exit(1)
