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

from fathom_local.control_plane.binaries import Binaries
from fathom_local.tools.helm import Helm
from support.local_cluster import DEADLINE_SECONDS, eventually
from support.pages import REPOSITORY

NEVER_ENDS: Final = "--watch"
WATCHED_SECONDS: Final = 3.0
COMMAND_SECONDS: Final = 60.0
CHECKOUT: Final = ("charts", "examples")
"""What the commands name of one."""


@dataclass(frozen=True)
class Terminal:
    """A folder with what the commands name, and the tools on PATH."""

    folder: Path
    environment: dict[str, str]

    async def typed(self, command: str) -> tuple[int, str]:
        """How it ended and what it printed; what never ends is ended, as by control-C."""
        process = await self._started(command)
        watched = NEVER_ENDS in command
        ends = WATCHED_SECONDS if watched else COMMAND_SECONDS
        ender = asyncio.get_running_loop().call_later(ends, _end, process)
        said, _ = await process.communicate()
        ender.cancel()
        return 0 if watched else process.returncode or 0, said.decode()

    async def says(
        self, command: str, wanted: str, *, code: int = 0, seconds: float = DEADLINE_SECONDS
    ) -> str:
        """Types it until it prints this, as somebody would who looks again; what it printed."""
        last = ""

        async def looked() -> bool:
            nonlocal last
            ended, last = await self.typed(command)
            assert ended == code, f"{command} ends with {ended}: {last}"
            return re.search(wanted, last) is not None

        try:
            await eventually(looked, command, seconds)
        except pytest.fail.Exception:
            pytest.fail(f"{command} does not say {wanted}, but: {last}")
        return last

    @asynccontextmanager
    async def running(self, command: str) -> AsyncIterator[Process]:
        """What goes on in a terminal of its own, until control-C."""
        process = await self._started(command)
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGINT)
            await asyncio.wait_for(process.wait(), COMMAND_SECONDS)

    async def _started(self, command: str) -> Process:
        return await asyncio.create_subprocess_exec(
            *("bash", "-c", command),
            cwd=self.folder,
            env=self.environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )


def _end(process: Process) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


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
