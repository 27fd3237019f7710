"""Asks a vLLM: scripts that its own Python runs, JSON on stdin, JSON on the last line."""

import json
import os
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

from local_cluster.engine import script_server
from local_cluster.engine.environment import EngineEnvironmentError, engine_variables
from local_cluster.engine.sources import ensure_asked_engine
from local_cluster.paths import PYTHON_PATH

_TIMEOUT_S: Final = 1200
_LAST_LINES: Final = 30


@dataclass(frozen=True, slots=True)
class ImportedVllm:
    """A process that has imported vLLM, and runs each script in a fork (see `script_server`)."""

    release: str
    asked: socket.socket
    answers: IO[str]
    log: IO[str]

    def ask(self, script: Path, question: object, *arguments: str) -> Any:
        """What a script answers; what others changed in vLLM has no part in it.

        Args:
            script: run by the Python of the engine's environment.
            question: what it reads.
            arguments: of its command line.

        Raises:
            EngineEnvironmentError: the script failed, or vLLM cannot be imported; with the last
                words.
        """
        asked = {"script": str(script), "arguments": arguments, "input": json.dumps(question)}
        try:
            self.asked.sendall(f"{json.dumps(asked)}\n".encode())
            answer = json.loads(self.answers.readline())
        except (OSError, json.JSONDecodeError):  # it has ended, or has not answered in time
            self.log.seek(0)
            raise self._failed(script, self.log.read()) from None
        if answer["code"]:
            raise self._failed(script, answer["errors"] or f"exit code {answer['code']}")
        return json.loads(answer["output"].splitlines()[-1])

    def _failed(self, script: Path, said: str) -> EngineEnvironmentError:
        *before, last = said.splitlines() or ["no answer"]
        lines = [f"{script.name} in vLLM {self.release}: {last}", *before[-_LAST_LINES:]]
        return EngineEnvironmentError("\n".join(lines))


@contextmanager
def imported_vllm(release: str) -> Iterator[ImportedVllm]:
    """A vLLM that is imported once, and asked as often as one likes.

    Args:
        release: of vLLM.

    Raises:
        EngineEnvironmentError: this release cannot be had.
    """
    engine = ensure_asked_engine(release)
    variables = {**engine_variables(engine.environment), "PYTHONPATH": PYTHON_PATH}
    ours, theirs = socket.socketpair()
    ours.settimeout(_TIMEOUT_S)
    with (
        ours,
        theirs,
        ours.makefile() as answers,
        tempfile.TemporaryFile("w+") as log,
        subprocess.Popen(
            # Without what lies in the working directory.
            [engine.python, "-P", "-m", script_server.__name__],
            stdin=theirs.fileno(),
            stdout=theirs.fileno(),
            stderr=log,
            env={**os.environ, **variables},
            start_new_session=True,
        ) as process,
    ):
        theirs.close()  # so that what it leaves open is closed when it ends
        try:
            yield ImportedVllm(release, ours, answers, log)
        finally:
            # With a script whose answer nobody waited for.
            os.killpg(process.pid, signal.SIGKILL)
