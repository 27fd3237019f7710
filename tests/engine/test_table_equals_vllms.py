"""Our expansion of a schedule against the function vLLM expands it with."""

import os
import subprocess
from pathlib import Path

import pytest

import fathom_vllm
from fathom_local.engine.environment import ensure_engine_environment

pytestmark = pytest.mark.engine

CODE = """
import random
from vllm.v1.spec_decode.dynamic.utils import build_dynamic_sd_schedule_lookup
from fathom_vllm.schedule import depth_table

chance = random.Random(1)
for _ in range(3000):
    schedule, last = [], 0
    for number in range(chance.randint(1, 6)):
        first = 1 if number == 0 else last + chance.randint(1, 6)
        last = first + chance.randint(0, 40)
        schedule.append((first, last, chance.randint(0, 7)))
    max_batch = chance.randint(1, 128)
    ours = depth_table(tuple(schedule), max_batch)
    theirs = build_dynamic_sd_schedule_lookup(schedule, max_batch, 7)
    assert ours == theirs, (schedule, max_batch, ours, theirs)
print("equal")
"""


@pytest.mark.parametrize("version", ["0.32.0", "0.28.0"])
def test_tables_are_equal_for_any_schedule(version: str) -> None:
    python = ensure_engine_environment(version=version) / "bin" / "python"
    process = subprocess.run(
        [python, "-c", CODE],
        env={**os.environ, "PYTHONPATH": str(Path(fathom_vllm.__file__).parents[1])},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert process.stdout.endswith("equal\n"), process.stderr[-2000:]
