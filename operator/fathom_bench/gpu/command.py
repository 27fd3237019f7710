"""`fathom local bench-gpu`, the command."""

from pathlib import Path
from typing import Annotated, Final

import typer

from fathom_bench.gpu.arms import GPU_SHAPE
from fathom_bench.gpu.machine import cpu_machine, gpu_machine
from fathom_bench.gpu.main import run_bench
from fathom_bench.gpu.plan import ON_A_GPU, ON_THE_CPU, quick
from fathom_bench.gpu.report import claims
from fathom_bench.gpu.tables import result_tables
from fathom_bench.results import require_folder, result_console
from fathom_local.engine.model_pair import SMALL, ModelPairError, ensure_model_pair
from fathom_local.errors import LocalClusterError
from fathom_local.explained import explained
from fathom_local.paths import cache_dir

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
        plan = ON_A_GPU if machine.gpu else ON_THE_CPU
        report = run_bench(console, machine, pair, quick(plan) if brief else plan, quick=brief)
        if json_file is not None:
            json_file.write_text(report.model_dump_json(indent=2) + "\n")
        console.print(result_tables(report))
    if not all(claim.holds for claim in claims(report)):
        raise typer.Exit(1)
