"""Processes that outlive the command that started them, and are ended by nobody else.

A pid alone is not an identity, since the kernel hands it out again; a pid with its start time is.
"""

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil
from pydantic import BaseModel, ConfigDict

from local_cluster.errors import LocalClusterError

TERMINATE_SECONDS = 15.0
KILL_SECONDS = 5.0


class ProcessRecord(BaseModel):
    """One process that this package started."""

    model_config = ConfigDict(frozen=True)

    name: str
    pid: int
    started_at: float
    """Seconds since the epoch, as the kernel counts them."""

    def find(self) -> psutil.Process | None:
        """The process, if it still runs and is still the one that was started."""
        try:
            process = psutil.Process(self.pid)
            if process.create_time() != self.started_at:
                return None
            if process.status() == psutil.STATUS_ZOMBIE:
                return None
        except psutil.NoSuchProcess:
            return None
        return process


def this_process() -> ProcessRecord:
    """The process that asks."""
    own = psutil.Process()
    return ProcessRecord(name=own.name(), pid=own.pid, started_at=own.create_time())


def start_daemon(
    name: str,
    argv: Sequence[str],
    *,
    log: Path,
    env: Mapping[str, str],
) -> ProcessRecord:
    """Starts a process in a session of its own, its output appended to `log`.

    Raises:
        LocalClusterError: the program does not exist or cannot be executed.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        try:
            process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env=dict(env),
                cwd="/",
            )
        except OSError as error:
            raise LocalClusterError(
                f"{name} did not start: {argv[0]}: {error.strerror}."
            ) from error
    # The warning of an unwaited child is meant for those who forgot it; this one is a daemon.
    process.returncode = 0
    return ProcessRecord(
        name=name, pid=process.pid, started_at=psutil.Process(process.pid).create_time()
    )


def daemon_environment() -> dict[str, str]:
    """The caller's environment without what would send local traffic elsewhere."""
    return {
        key: value
        for key, value in os.environ.items()
        if not key.lower().endswith("_proxy") and not key.startswith("KUBE")
    }


def stop_processes(records: Sequence[ProcessRecord]) -> None:
    """Ends the processes, politely and then not, and waits for what they started; idempotent."""
    living = [process for record in records if (process := record.find())]
    started = [child for process in living for child in _descendants(process)]
    for process in living:
        _signal(process, signal.SIGTERM)
    _, stubborn = psutil.wait_procs(living, timeout=TERMINATE_SECONDS)
    for process in stubborn:
        _signal(process, signal.SIGKILL)
    _, orphans = psutil.wait_procs([*stubborn, *started], timeout=KILL_SECONDS)
    for process in orphans:
        _signal(process, signal.SIGKILL)


def _descendants(process: psutil.Process) -> list[psutil.Process]:
    try:
        return process.children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def _signal(process: psutil.Process, number: int) -> None:
    try:
        process.send_signal(number)
    except psutil.NoSuchProcess:
        return


def last_lines(log: Path, count: int = 8) -> str:
    """The end of a log, for an error message; empty when there is none."""
    try:
        lines = log.read_text(errors="replace").splitlines()
    except FileNotFoundError:
        return ""
    return "\n".join(f"    {line}" for line in lines[-count:])
