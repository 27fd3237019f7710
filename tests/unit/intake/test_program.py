"""The program as a pod has it: a folder of files on `PYTHONPATH`, and nothing else of Fathom's."""

import json
import os
import subprocess
import sys
from pathlib import Path

import fathom_intake
from fathom.engine.plugin import source_files
from support.trained_drafts import CLASS, Intake, names_in
from support.waiting import GUARD_S

MOST_BYTES = 1 << 20
"""In a ConfigMap."""


def delivered(directory: Path) -> Path:
    for path, text in source_files(fathom_intake).items():
        (directory / path).parent.mkdir(parents=True, exist_ok=True)
        (directory / path).write_text(text)
    return directory


def test_its_files_fit_into_a_config_map() -> None:
    assert sum(len(text.encode()) for text in source_files(fathom_intake).values()) < MOST_BYTES / 4


def test_it_needs_nothing_of_the_operator_s(intake: Intake) -> None:
    code = delivered(intake.directory / "code")
    message = intake.directory / "message"
    text = (
        "import runpy, sys\n"
        "sys.modules['fathom'] = sys.modules['pydantic'] = None\n"
        "runpy.run_module('fathom_intake', run_name='__main__', alter_sys=True)\n"
    )
    done = subprocess.run(
        [
            *(sys.executable, "-c", text, "--output", str(intake.output.path)),
            *("--store", str(intake.store), "--max-bytes", "1000000", "--message", str(message)),
            *("--known", CLASS, "llama"),
        ],
        env={**os.environ, "PYTHONPATH": str(code)},
        cwd=intake.directory,
        check=False,
        capture_output=True,
        timeout=GUARD_S,
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    draft = json.loads(message.read_text())["draft"]
    assert names_in(intake.store) == [draft["folder"]]
