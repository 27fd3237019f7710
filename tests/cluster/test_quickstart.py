"""The README's and Getting started's way onto a cluster, typed as it stands there.

By the real Helm and the real kubectl, at a real control plane whose one node has no GPU: the
operator runs, and the model waits and says for what. What is typed on a laptop is run elsewhere:
`ELSEWHERE` says where.
"""

import asyncio
import os
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Final

import pytest
import yaml
from rich.progress import Progress

from local_cluster.cluster import LocalCluster
from local_cluster.control_plane.obtain import ensure_binaries
from local_cluster.helm import find_helm
from support.pages import DOCS, REPOSITORY, commands, resources
from support.terminal import Terminal, terminal_in

pytestmark = pytest.mark.cluster

PAGES: Final = (REPOSITORY / "README.md", DOCS / "getting-started.md")
ELSEWHERE: Final = {
    "make demo": "tests/e2e shows the same, with the same engines, and asks more of it",
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
    "create secret": "secret/hf-token created",
    "fathom status": "(?s)^llm/kimi-k2 is not well: PodUnschedulable: pod .*0/2 ready",
    "fathom report": "Written: kimi-k2.html",
    "delete sd": r'"kimi-k2" deleted',
}
"""By words of a command: what it prints, at the latest when the operator has looked."""
ENDS_WITH: Final = {"fathom status": 1}
"""Exit codes but 0: the model waits."""
TOKEN: Final = "played-token"


@pytest.fixture(scope="module")
async def terminal(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Terminal]:
    with Progress() as progress:
        binaries = await asyncio.to_thread(ensure_binaries, progress)
    helm = await asyncio.to_thread(find_helm)
    folder = tmp_path_factory.mktemp("checkout")
    for page in PAGES:
        for name, manifest in resources(page).items():
            (folder / f"{name}.yaml").write_text(yaml.safe_dump(manifest), encoding="utf-8")
    async with LocalCluster.start(f"quickstart-{os.getpid()}", nodes=0) as cluster:
        found = terminal_in(folder, cluster.kubeconfig, helm, binaries)
        yield replace(found, environment={**found.environment, "HF_TOKEN": TOKEN})


def shown() -> list[str]:
    """Each command once, in the order of the pages."""
    told = [str(each) for page in PAGES for each in commands(page) if not each.inline]
    return list(dict.fromkeys(told))


def test_what_is_run_elsewhere_is_still_shown() -> None:
    assert [each for each in ELSEWHERE if each not in shown()] == []


async def test_each_command_does_what_the_page_says(terminal: Terminal) -> None:
    typed = [each for each in shown() if each not in ELSEWHERE]
    assert {each.split()[0] for each in typed} == {"helm", "kubectl", "fathom"}
    for command in typed:
        print(f"$ {command}")
        code = next((code for part, code in ENDS_WITH.items() if part in command), 0)
        await terminal.says(command, _wanted(command), code=code)


def _wanted(command: str) -> str:
    return next((words for part, words in SAYS.items() if part in command), "")
