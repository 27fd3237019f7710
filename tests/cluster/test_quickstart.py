"""The README's and Getting started's way onto a cluster, typed as it stands there.

By the real Helm and the real kubectl, at a real control plane whose one node has no GPU: the
operator runs, and the model waits and says for what. What is typed on a laptop is run elsewhere:
`ELSEWHERE` says where.
"""

import asyncio
import os
import re
import shutil
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
import yaml
from rich.progress import Progress

from fathom_local.cluster import LocalCluster
from fathom_local.control_plane.binaries import Binaries
from fathom_local.control_plane.obtain import ensure_binaries
from fathom_local.tools.helm import Helm, find_helm
from support.local_cluster import eventually
from support.pages import DOCS, REPOSITORY, commands, resources

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

PAGES: Final = (REPOSITORY / "README.md", DOCS / "getting-started.md")
ELSEWHERE: Final = {
    "make demo": "tests/e2e sets the same stage, with the same engines, and asks more of it",
    "make test": "runs this",
    "make test-fast": "its tests are those of the first tier of `make test`",
    "make": "tests/unit/packaging/test_commands_in_pages.py",
    "fathom check -f kimi-k2.yaml": "tests/unit/packaging/test_commands_in_pages.py",
    "fathom render -f kimi-k2.yaml": "tests/unit/packaging/test_commands_in_pages.py",
    "kubectl --namespace llm port-forward service/kimi-k2 8000": "the local cluster's pods forward "
    "nothing; tests/e2e sends its requests to the Service",
}
"""What is shown and not typed here, and what is done instead."""
SAYS: Final = {
    "rollout status": "successfully rolled out",
    "apply -f": r"speculativedeployment.fathom.dev/kimi-k2 (created|configured)",
    "get sd": r"kimi-k2 +0/2 +PodUnschedulable +3 ",
    "describe sd": r"(?s)Reason: +PodUnschedulable.*Type: +Tuning.*Events:",
    "delete sd": r'"kimi-k2" deleted',
}
"""By words of a command: what it prints, at the latest when the operator has looked."""
NEVER_ENDS: Final = "--watch"
WATCHED_SECONDS: Final = 3.0
COMMAND_SECONDS: Final = 60.0


@dataclass(frozen=True)
class Terminal:
    """Where a reader types: a checkout, with the page's manifest and the tools on PATH."""

    folder: Path
    environment: dict[str, str]

    async def typed(self, command: str) -> tuple[int, str]:
        """How it ended and what it printed; what never ends is ended, as by control-C."""
        process = await asyncio.create_subprocess_exec(
            *("bash", "-c", command),
            cwd=self.folder,
            env=self.environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        watched = NEVER_ENDS in command
        ends = WATCHED_SECONDS if watched else COMMAND_SECONDS
        ender = asyncio.get_running_loop().call_later(ends, _end, process)
        said, _ = await process.communicate()
        ender.cancel()
        return 0 if watched else process.returncode or 0, said.decode()

    async def says(self, command: str, wanted: str) -> None:
        """Types it until it prints this, as somebody would who looks again."""
        last = ""

        async def looked() -> bool:
            nonlocal last
            code, last = await self.typed(command)
            assert code == 0, f"{command}: {last}"
            return re.search(wanted, last) is not None

        try:
            await eventually(looked, command)
        except pytest.fail.Exception:
            pytest.fail(f"{command} does not say {wanted}, but: {last}")


def _end(process: asyncio.subprocess.Process) -> None:
    with suppress(ProcessLookupError):
        process.kill()


@pytest.fixture(scope="module")
async def terminal(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Terminal]:
    with Progress() as progress:
        binaries = await asyncio.to_thread(ensure_binaries, progress)
    helm = await asyncio.to_thread(find_helm)
    folder = tmp_path_factory.mktemp("checkout")
    for name in ("charts", "examples"):
        (folder / name).symlink_to(REPOSITORY / name)
    for page in PAGES:
        for name, manifest in resources(page).items():
            (folder / f"{name}.yaml").write_text(yaml.safe_dump(manifest), encoding="utf-8")
    async with LocalCluster.start(f"quickstart-{os.getpid()}", nodes=0) as cluster:
        tools = _tools(tmp_path_factory.mktemp("bin"), helm, binaries)
        path = f"{tools}:{os.environ['PATH']}"
        usual = {**os.environ, **helm.environment}
        yield Terminal(
            folder,
            {**usual, "PATH": path, "KUBECONFIG": str(cluster.kubeconfig)},
        )


def _tools(folder: Path, helm: Helm, binaries: Binaries) -> Path:
    """The tools by the names that the pages call them."""
    own = binaries.directory / "kubectl"
    kubectl = own if own.is_file() else shutil.which("kubectl")
    assert kubectl is not None, f"No kubectl: put one into {binaries.directory}, or on PATH."
    (folder / "kubectl").symlink_to(kubectl)
    start = " ".join(helm.command)
    (folder / "helm").write_text(f'#!/bin/sh\nexec {start} "$@" --kubeconfig "$KUBECONFIG"\n')
    (folder / "helm").chmod(0o755)
    return folder


def shown() -> list[str]:
    """Each command once, in the order of the pages."""
    told = [str(each) for page in PAGES for each in commands(page) if not each.inline]
    return list(dict.fromkeys(told))


def test_what_is_run_elsewhere_is_still_shown() -> None:
    assert [each for each in ELSEWHERE if each not in shown()] == []


async def test_each_command_does_what_the_page_says(terminal: Terminal) -> None:
    typed = [each for each in shown() if each not in ELSEWHERE]
    assert {each.split()[0] for each in typed} == {"helm", "kubectl"}
    for command in typed:
        print(f"$ {command}")
        await terminal.says(command, _wanted(command))


def _wanted(command: str) -> str:
    return next((words for part, words in SAYS.items() if part in command), "")
