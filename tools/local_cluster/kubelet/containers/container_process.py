"""One running container: its program, in its namespaces."""

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from local_cluster.kubelet.containers.runner import ContainerPlan
from local_cluster.kubelet.problem import CREATE_CONTAINER_ERROR, PodProblem
from local_cluster.kubelet.sandbox import RUNNER

START_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class ContainerProcess:
    """A program that was executed, and may have ended since."""

    runner: asyncio.subprocess.Process
    pid: int
    """As the host sees it; in its own PID namespace it is 1."""
    plan: ContainerPlan
    exited: asyncio.Event = field(default_factory=asyncio.Event)

    async def wait(self) -> int:
        """Waits for the end.

        Returns:
            The exit code; 128 plus its number when a signal ended the program.
        """
        code = await self.runner.wait()
        self.exited.set()
        return code

    def signal(self, number: signal.Signals) -> None:
        """Signals the program, and it alone, as container runtimes do; a no-op once it ended.

        Its children are its to end; they are killed when it is gone, being in its PID namespace.
        """
        if self.runner.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    async def execute(self, command: Sequence[str], limit_seconds: float) -> tuple[int, str]:
        """Runs a command beside the program, as `kubectl exec` would.

        Returns:
            Exit code and output.

        Raises:
            TimeoutError: it took longer; it was killed.
        """
        entered = await asyncio.create_subprocess_exec(
            *("nsenter", "--target", str(self.pid)),
            *("--mount", "--net", "--uts", "--ipc", "--pid", "--root", "--wd", "--"),
            *command,
            env=self.plan["env"] | {"PATH": self.plan["env"].get("PATH", os.defpath)},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            async with asyncio.timeout(limit_seconds):
                output, _ = await entered.communicate()
        finally:
            if entered.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(entered.pid, signal.SIGKILL)
                await entered.wait()
        return entered.returncode or 0, output.decode(errors="replace")


async def start_container(plan: ContainerPlan, log: Path) -> ContainerProcess:
    """Executes a program.

    Raises:
        PodProblem: it could not be executed.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        process = await asyncio.create_subprocess_exec(
            *RUNNER,
            "container",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=output,
        )
    try:
        async with asyncio.timeout(START_SECONDS):
            line = await _first_line(process, plan)
    except BaseException:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        raise
    word, _, rest = line.partition(" ")
    if word != "started":
        await process.wait()
        detail = rest or f"see {log}"
        raise PodProblem(CREATE_CONTAINER_ERROR, f"The container did not start: {detail}")
    return ContainerProcess(process, int(rest), plan)


async def _first_line(process: asyncio.subprocess.Process, plan: ContainerPlan) -> str:
    if process.stdin is None or process.stdout is None:
        raise RuntimeError("the runner was started without pipes")
    process.stdin.write(json.dumps(plan).encode())
    process.stdin.close()
    return (await process.stdout.readline()).decode().strip()
