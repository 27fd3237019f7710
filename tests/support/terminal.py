"""Where somebody types what the documentation shows, to the letter."""

import asyncio
import os
import re
import shutil
import signal
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from local_cluster.control_plane.binaries import Binaries
from local_cluster.helm import Helm
from support.pages import REPOSITORY
from support.waiting import GUARD_S, guarded, until

NEVER_ENDS: Final = "--watch"
CHECKOUT: Final = ("charts", "examples", "tools")
"""What the commands name of one."""


@dataclass(frozen=True)
class Terminal:
    """A folder with what the commands name, and the tools on PATH."""

    folder: Path
    environment: dict[str, str]

    async def says(
        self, command: str, wanted: str, *, code: int = 0, seconds: float = GUARD_S
    ) -> str:
        """Types it until it prints this, as somebody would who looks again; what it printed."""
        said: list[str] = []

        async def looked() -> bool:
            said.clear()
            ended = await self._typed(command, wanted, said)
            assert ended == code, f"{command} ends with {ended}: {''.join(said)}"
            return re.search(wanted, "".join(said)) is not None

        try:
            await until(looked, command, within_s=seconds)
        except pytest.fail.Exception:
            pytest.fail(f"{command} does not say {wanted}, but: {''.join(said)}")
        return "".join(said)

    async def _typed(self, command: str, wanted: str, said: list[str]) -> int:
        """Its exit code, once it has said all; what never ends is ended once it has said this."""
        process = await self._started(command)
        assert process.stdout is not None
        never_ends = NEVER_ENDS in command
        try:
            async for line in process.stdout:
                said.append(line.decode())
                if never_ends and re.search(wanted, "".join(said)):
                    return 0
            return await process.wait()
        finally:
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                await process.wait()

    @asynccontextmanager
    async def running(self, command: str) -> AsyncIterator[Process]:
        """What goes on in a terminal of its own, until control-C."""
        process = await self._started(command)
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGINT)
            async with guarded(f"control-C ends {command}"):
                await process.wait()

    async def _started(self, command: str) -> Process:
        return await asyncio.create_subprocess_exec(
            # Control-C ends it, though tests that run in the background inherit that it is ignored.
            *("env", "--default-signal=INT", "bash", "-c", command),
            cwd=self.folder,
            env=self.environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )


def terminal_in(folder: Path, kubeconfig: Path, helm: Helm, binaries: Binaries) -> Terminal:
    """A terminal in a new checkout, at a cluster.

    Args:
        folder: an empty one.
        kubeconfig: of the cluster.
        helm: whatever there is.
        binaries: of the control plane, with kubectl or without.
    """
    for name in CHECKOUT:
        (folder / name).symlink_to(REPOSITORY / name)
    tools = _tools(folder / "bin", helm, binaries)
    return Terminal(
        folder,
        {
            **os.environ,
            "PATH": f"{tools}:{Path(sys.executable).parent}:{os.environ['PATH']}",
            "KUBECONFIG": str(kubeconfig),
            "COLUMNS": "160",
        },
    )


def _tools(folder: Path, helm: Helm, binaries: Binaries) -> Path:
    """The tools by the names that the pages call them."""
    own = binaries.directory / "kubectl"
    kubectl = own if own.is_file() else shutil.which("kubectl")
    assert kubectl is not None, f"No kubectl: put one into {binaries.directory}, or on PATH."
    folder.mkdir()
    (folder / "kubectl").symlink_to(kubectl)
    # Its library on a path of its own, before whatever `fathom` is found by.
    paths = [f'{name}="{path}:${name}"' for name, path in helm.environment.items()]
    start = " ".join(["exec", "env", *paths, *helm.command])
    (folder / "helm").write_text(f'#!/bin/sh\n{start} "$@" --kubeconfig "$KUBECONFIG"\n')
    (folder / "helm").chmod(0o755)
    return folder
