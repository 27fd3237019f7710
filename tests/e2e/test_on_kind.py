"""docs/kind.md: its commands as typed, on the local cluster, with its manifest as it is.

The local cluster runs another vLLM in the place of that image. What is *kind only* is judged as
text: tests/unit/packaging/test_commands_in_pages.py. Before test_rollouts.py, which has a fleet of
its own, and after test_loop.py, whose fleet is gone.
"""

from typing import Final

import pytest

from e2e import newcomer
from e2e.observation import GUARD_SECONDS, until
from fathom.api import names
from local_cluster.demo.fleet import DemoFleet
from local_cluster.demo.stage import DemoStage, condition, wait_ready
from support.pages import DOCS, blocks
from support.terminal import Terminal

pytestmark = pytest.mark.e2e

PAGE: Final = DOCS / "kind.md"
BY_TEST, ON_KIND = "*Run by the test:*", "*Kind only:*"
MOST_ON_KIND: Final = 4
SAYS: Final = {
    "create configmap": "configmap/pair created",
    "apply -f": "speculativedeployment.fathom.dev/small created",
    "wait sd": "condition met",
    "fathom traffic": r"\d+ requests in \d+ s, none failed\. [1-9]\d* tokens per second\.",
    "fathom status": r"(?s)llm/small is well.*depth +\d",
    "get sd small": r"small +1/1 +AllReplicasReady ",
}
"""By words of a command: what it prints."""


def marked(mark: str) -> list[str]:
    """The commands of the blocks below a mark."""
    return [command for before, shown in blocks(PAGE) if before == mark for command in shown]


def test_each_block_says_who_runs_it() -> None:
    assert {before for before, _ in blocks(PAGE)} == {BY_TEST, ON_KIND}
    assert len(marked(ON_KIND)) <= MOST_ON_KIND


async def test_the_page_brings_a_model_that_serves(stage: DemoStage, terminal: Terminal) -> None:
    typed_before = newcomer.acts().before
    typed = [each for each in marked(BY_TEST) if each not in typed_before]
    # The operator is there, and so is the namespace: the quickstart has typed the same.
    assert [each for each in marked(BY_TEST) if each in typed_before] == marked(BY_TEST)[:3]
    fleet = DemoFleet(stage.fleet.api, stage.fleet.http, stage.fleet.namespace, "small")
    for command in typed:
        print(f"$ {command}")
        if " wait " in command:
            await wait_ready(fleet, print)  # it says more than kubectl would
        wanted = next((words for part, words in SAYS.items() if part in command), None)
        assert wanted is not None, f"what does `{command}` print?"
        await terminal.says(command, wanted, seconds=GUARD_SECONDS)

    resource = await fleet.resource()
    assert resource["status"]["engine"]["actuation"] == "Live"
    assert condition(resource, "Degraded")["status"] == "False"
    counters = await fleet.counters()
    assert [pod.device for pod in counters] == ["cpu"]

    await fleet.api.request("DELETE", fleet.path)
    await until(lambda: _gone(fleet))


async def _gone(fleet: DemoFleet) -> bool:
    listed = await fleet.api.request(
        "GET",
        f"/api/v1/namespaces/{fleet.namespace}/pods",
        query={"labelSelector": f"{names.LABEL_NAME}={fleet.name}"},
    )
    return listed["items"] == []
