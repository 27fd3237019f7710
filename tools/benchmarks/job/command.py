"""`python -m benchmarks job`, the command."""

import asyncio
from pathlib import Path
from typing import Annotated, Final

import typer

from benchmarks.job.main import (
    CLASSES,
    CONFIG_MAP,
    LONG_TOKENS,
    OUTPUT_TOKENS,
    PROMPTS,
    run_bench_job,
)
from benchmarks.job.truth import compared, truth_table
from benchmarks.results import require_folder, result_console
from fathom.bench.result import bench_table
from local_cluster.errors import explained

_WIDTH: Final = 110


def bench_job_command(
    *,
    depths: Annotated[str, typer.Option(help="Separated by commas.")] = "0,1,3",
    concurrency: Annotated[str, typer.Option(help="Separated by commas.")] = "1,4",
    num_prompts: Annotated[int, typer.Option(min=1, help="Of each run.")] = PROMPTS,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the result.")] = None,
) -> None:
    """`fathom bench` on a cluster of this machine; fails where it misses the known acceptance."""
    console = result_console(_WIDTH)
    arguments = [
        *("--prompts", f"configmap:{CONFIG_MAP}/easy.json"),
        *("--prompts", f"configmap:{CONFIG_MAP}/hard.json"),
        *("--prompts", f"configmap:{CONFIG_MAP}", "--category", "easy"),
        *("--prompts", "random", "--input-tokens", f"64,{LONG_TOKENS}"),
        *("--output-tokens", str(OUTPUT_TOKENS), "--num-prompts", str(num_prompts)),
        *("--depths", depths, "--concurrency", concurrency),
    ]
    with explained():
        require_folder(json_file)
        bench = asyncio.run(run_bench_job(arguments))
        if json_file is not None:
            json_file.write_text(f"{bench.to_json()}\n", encoding="utf-8")
    console.print(bench_table(bench))
    rows = compared(bench, CLASSES, OUTPUT_TOKENS)
    console.print(truth_table(rows))
    missed = sum(not each.holds for each in rows)
    console.print(
        f"{len(rows) - missed} of {len(rows)} intervals hold the truth; "
        f"{len(bench.not_measured)} runs were not measured."
    )
    if missed or bench.not_measured or not rows:
        raise typer.Exit(1)
