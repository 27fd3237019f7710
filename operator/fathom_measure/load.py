"""One run of `vllm bench serve` against the engine that answers here."""

import importlib.util
import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any, Final

from fathom_measure import json_lines
from fathom_measure.engine import HOST, MeasureError, last_lines
from fathom_measure.plan import LoadPlan

KEPT: Final = (
    *("completed", "failed", "total_input_tokens", "total_output_tokens", "duration"),
    *("output_throughput", "mean_tpot_ms", "mean_ttft_ms"),
    *("spec_decode_num_drafts", "spec_decode_per_position_acceptance_rates"),
)
"""Values kept of vLLM's: the rest grows with the number of requests, or follows from these."""
_RESULT: Final = "result.json"


def run_load(plan: LoadPlan, seconds: float) -> dict[str, Any]:
    """What vLLM found, as it calls it.

    Args:
        plan: of the run.
        seconds: that it may take.

    Raises:
        MeasureError: it failed or took too long, or wrote no result.
    """
    with tempfile.TemporaryDirectory(prefix="load-") as folder:
        directory = Path(folder)
        output = directory / "output"
        command = ["vllm", "bench", "serve", *plan.arguments]
        command += ["--result-dir", folder, "--result-filename", _RESULT]
        try:
            with output.open("w", encoding="utf-8") as file:
                code = subprocess.run(
                    command,
                    stdout=file,
                    stderr=subprocess.STDOUT,
                    env=_environment(directory),
                    timeout=seconds,
                    check=False,
                ).returncode
        except subprocess.TimeoutExpired as error:
            raise MeasureError(
                f"vllm bench serve did not end within {seconds:.0f} s. Its last "
                f"lines:\n{last_lines(output)}"
            ) from error
        except OSError as error:
            raise MeasureError(f"vllm bench serve cannot be started: {error}") from error
        if code:
            raise MeasureError(
                f"vllm bench serve ended with {code}. Its last lines:\n{last_lines(output)}"
            )
        try:
            found: dict[str, Any] = json.loads((directory / _RESULT).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise MeasureError(f"vllm bench serve left no readable result: {error}") from error
    return {name: found[name] for name in KEPT if name in found}


def _environment(directory: Path) -> dict[str, str]:
    environment = {**os.environ, **_direct_to_engine()}
    # The one that the engine asks for; vLLM's client calls it otherwise.
    if "VLLM_API_KEY" in environment:
        environment.setdefault("OPENAI_API_KEY", environment["VLLM_API_KEY"])
    if (stand_in := pandas_stand_in(directory)) is not None:
        folders = [str(stand_in), environment.get("PYTHONPATH", "")]
        environment["PYTHONPATH"] = os.pathsep.join(each for each in folders if each)
    return environment


def _direct_to_engine() -> dict[str, str]:
    """A proxy is meant for the hub, and vLLM's client takes it for every server."""
    # The one in small letters counts where both are there; and `*` counts alone.
    kept = os.environ.get("no_proxy") or os.environ.get("NO_PROXY")
    hosts = kept if kept == "*" else ",".join(each for each in (kept, HOST) if each)
    return {"no_proxy": hosts, "NO_PROXY": hosts}


def pandas_stand_in(directory: Path) -> Path | None:
    """A folder in which `pandas` is found; None: the image holds a real one.

    Args:
        directory: where it is made.
    """
    if importlib.util.find_spec("pandas") is not None:
        return None
    folder = directory / "stand-in"
    folder.mkdir()
    shutil.copyfile(json_lines.__file__, folder / "pandas.py")
    return folder
