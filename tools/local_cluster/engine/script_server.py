"""Runs scripts where vLLM is imported already, since importing it costs more than most questions.

Run by the Python of an engine's environment, never by the operator's; `asking` starts it. Reads
lines of JSON, a script to run each, and writes a line of JSON for each. Every script runs in a fork
of its own: what it changes in vLLM is gone with it.
"""

import gc
import importlib
import json
import os
import pickle
import runpy
import sys
import tempfile
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any, TextIO

from fathom_measure.start_probe import parser_module


def main() -> None:
    """Import vLLM, and run what is asked for until there is nothing more to read."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # vLLM writes there what it logs
    gc.disable()  # nothing of what is imported is garbage
    importlib.import_module("vllm.model_executor.models.registry")
    parser_module()
    gc.freeze()
    gc.enable()
    for line in sys.stdin:
        _run(json.loads(line), answers)


def _run(asked: Mapping[str, Any], answers: TextIO) -> None:
    """Run one script in a fork, and tell how it ended and what it wrote."""
    with (
        tempfile.TemporaryFile("w+") as read,
        tempfile.TemporaryFile("w+") as written,
        tempfile.TemporaryFile("w+") as errors,
    ):
        read.write(asked["input"])
        read.seek(0)
        sys.stdout.flush()  # or the fork would write it once more
        child = os.fork()
        if child == 0:
            for descriptor, file in enumerate((read, written, errors)):
                os.dup2(file.fileno(), descriptor)
            os._exit(_code_of(asked["script"], asked["arguments"]))
        _, status = os.waitpid(child, 0)
        for file in (written, errors):
            file.seek(0)
        code = os.waitstatus_to_exitcode(status)
        answer = {"code": code, "output": written.read(), "errors": errors.read()}
    answers.write(f"{json.dumps(answer)}\n")
    answers.flush()


def _code_of(script: str, arguments: Sequence[str]) -> int:
    """Run a script to its end; 0, or 1 where it raises anything."""
    sys.stdin = os.fdopen(0, closefd=False)
    sys.argv = [script, *arguments]
    look_at_models_in_forks()
    try:
        runpy.run_path(script, run_name="__main__")
        sys.stdout.flush()
    except BaseException:  # noqa: BLE001 - there is nobody else to tell
        traceback.print_exc()
        return 1
    return 0


def look_at_models_in_forks() -> None:
    """Let vLLM look at models' classes in forks; it would start a Python for each that it meets.

    They are forks of this process as it is now: what a script changes later has no part in what
    vLLM sees, as in a Python of its own. It remembers that for other processes.
    """
    ours, theirs = Pipe()
    if os.fork() == 0:
        ours.close()
        _look_at_models(theirs)
        os._exit(0)
    theirs.close()

    def in_a_fork(look: Callable[[], object]) -> object:
        ours.send_bytes(importlib.import_module("cloudpickle").dumps(look))
        seen, error = ours.recv()
        if error:
            raise RuntimeError(error)
        return seen

    registry = importlib.import_module("vllm.model_executor.models.registry")
    registry._run_in_subprocess = in_a_fork  # type: ignore[attr-defined] # noqa: SLF001 - no other way


def _look_at_models(asked: Connection) -> None:
    """Until nobody can ask any more."""
    with suppress(EOFError):
        while True:
            look = asked.recv_bytes()
            child = os.fork()
            if child == 0:
                try:
                    asked.send((pickle.loads(look)(), ""))  # noqa: S301 - it is ours
                except Exception:  # noqa: BLE001 - whatever it is, it is vLLM's answer
                    asked.send((None, traceback.format_exc()))
                os._exit(0)
            if status := os.waitpid(child, 0)[1]:
                asked.send((None, f"it ended with {os.waitstatus_to_exitcode(status)}"))


if __name__ == "__main__":
    main()
