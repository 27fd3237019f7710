"""`python -m benchmarks hook`, the command."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.table import Table

from benchmarks.hook.figures import STAT_SECONDS, Figures
from benchmarks.results import require_folder, result_console
from local_cluster.engine.environment import (
    DEFAULT_ENGINE_VERSION,
    EngineEnvironmentError,
    engine_variables,
    ensure_engine_environment,
)
from local_cluster.engine.model_pair import ModelPairError, ensure_model_pair
from local_cluster.errors import LocalClusterError, explained
from local_cluster.paths import PYTHON_PATH, cache_dir

_WIDTH: Final = 110
_TIMEOUT_S: Final = 1800.0


def bench_hook_command(
    *,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the figures.")] = None,
) -> None:
    """What the hook adds to a step of vLLM's own scheduler, by batch; fails beyond its bounds."""
    console = result_console(_WIDTH)
    with explained():
        require_folder(json_file)
        figures = measured()
        if json_file is not None:
            json_file.write_text(figures.to_json() + "\n")
        console.print(table(figures))
        console.print(verdict(figures))
    if not figures.holds:
        raise typer.Exit(1)


def measured() -> Figures:
    """Measure in the engine's environment; minutes.

    Raises:
        LocalClusterError: it cannot be made, or the measurement failed.
    """
    try:
        environment = ensure_engine_environment()
        pair = ensure_model_pair(cache_dir(), environment / "bin" / "python")
    except (EngineEnvironmentError, ModelPairError) as error:
        raise LocalClusterError(str(error)) from error
    with tempfile.TemporaryDirectory() as directory:
        file, log = Path(directory) / "figures.json", Path(directory) / "log"
        with log.open("wb") as stderr:
            process = subprocess.run(
                [
                    str(environment / "bin" / "python"),
                    *("-m", "benchmarks.hook.schedulers"),
                    *(str(pair.target), str(pair.draft), str(file)),
                ],
                env={
                    **os.environ,
                    **engine_variables(environment),
                    "PYTHONPATH": PYTHON_PATH,
                    "VLLM_LOGGING_LEVEL": "WARNING",
                },
                stdout=sys.stderr,
                stderr=stderr,
                timeout=_TIMEOUT_S,
                check=False,
            )
        if process.returncode:
            tail = log.read_text(errors="replace").splitlines()[-15:]
            raise LocalClusterError(
                f"The schedulers could not be measured (exit code {process.returncode}):\n"
                + "\n".join(tail)
            )
        return Figures.from_json(file.read_text())


def table(figures: Figures) -> Table:
    """What was measured, batch by batch."""
    shown = Table(
        title=f"The scheduler of vLLM {DEFAULT_ENGINE_VERSION}, processor time of a step in µs"
    )
    for column in ("batch", "steps", "without the hook", "it adds [95 %]", "at most", "ratio"):
        shown.add_column(column, justify="right", no_wrap=True)
    for each in figures.rounds:
        low, high = each.interval_us
        shown.add_row(
            str(each.batch),
            each.kind,
            f"{each.step_us:.0f}",
            f"{each.hook_us:.1f} [{low:.1f}, {high:.1f}]",
            "" if each.bound_us is None else f"{each.bound_us:.0f}",
            f"{each.ratio:.3f}",
            style="" if each.holds else "red",
        )
    return shown


def verdict(figures: Figures) -> str:
    """What follows, in sentences."""
    slow = figures.slow_stat
    sentences = [
        f"While each stat of the depth file took {STAT_SECONDS} s ({slow.stats} of them), "
        f"{slow.steps} steps were made, the longest in {slow.longest_ms:.0f} ms: "
        + ("no step waited for it." if slow.holds else "a step may have waited for it.")
    ]
    sentences += [
        f"At batch {each.batch} ({each.kind}) the hook adds {each.hook_us:.1f} µs to a step, more "
        f"than the {each.bound_us:.0f} that it may."
        for each in figures.rounds
        if not each.holds
    ]
    if figures.holds:
        sentences.append("Every bound is kept.")
    elif figures.is_disturbed:
        sentences.append(
            f"The machine was busy (load {figures.load_per_processor:.1f} per processor), which "
            "empties caches and makes every step dearer: try again when it is quiet."
        )
    return "\n".join(sentences)
