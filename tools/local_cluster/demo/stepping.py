"""Processor time of the threads in which the engines step."""

from contextlib import suppress
from typing import Final

import psutil

_ENGINE_CORE: Final = "VLLM::EngineCore"
"""The name of the process whose main thread schedules and runs the model (with one OpenMP thread
alone): vllm/v1/engine/core.py."""


def stepping_seconds(parent: psutil.Process) -> float | None:
    """Processor seconds of all engines' stepping threads so far.

    Args:
        parent: of all pods' processes.

    Returns:
        None if no engine is vLLM's.
    """
    seconds = []
    for process in parent.children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if process.name() == _ENGINE_CORE:
                seconds += [
                    thread.user_time + thread.system_time
                    for thread in process.threads()
                    if thread.id == process.pid
                ]
    return sum(seconds) if seconds else None
