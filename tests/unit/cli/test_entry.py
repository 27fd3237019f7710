"""`fathom` as a container starts it: as process 1, which ignores what it has no handler for."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from support.waiting import GUARD_S

LONG = """
import time
print("importing", flush=True)
for _ in range(360_000):
    time.sleep(0.01)
"""
"""A module that takes long to import, as they all do on a node that has just begun.

In steps, as an import is: Python 3.14 may call a function before it looks for a signal.
"""


@pytest.mark.parametrize(("command", "code"), [("run", 0), ("render", -signal.SIGTERM)])
def test_a_signal_ends_it_while_it_is_still_being_imported(
    tmp_path: Path, command: str, code: int
) -> None:
    """Else its pod would hang for all of its grace period. No other command is a container's."""
    (tmp_path / "typer.py").write_text(LONG)
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    with subprocess.Popen(
        [sys.executable, "-m", "fathom", command],
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"importing\n"
            process.terminate()
            assert process.wait(GUARD_S) == code
        finally:
            process.kill()
