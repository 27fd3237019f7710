"""Somebody who types the quickstart as it stands there: so the fleet of these tests comes to be."""

import re
from html import unescape
from typing import Any, Final

from e2e.observation import GUARD_SECONDS
from local_cluster.demo.stage import DemoStage, wait_ready
from support.pages import DOCS, commands
from support.terminal import Terminal

PAGE: Final = DOCS / "quickstart.md"
ELSEWHERE: Final = {
    "make engine local-build": "what these tests need has been made by then",
    'export PATH="$PWD/.venv/bin:$PATH"': "support.terminal, whose checkout has no environment",
    "fathom local up": "tests/cluster/test_local_lifecycle.py; here the cluster has another name",
    "fathom local down": "likewise",
}
"""What is not typed, and what is done instead."""
TRAFFIC: Final = "fathom traffic"
REPORT: Final = "fathom report eagle --namespace llm"
SAYS: Final = {
    "rollout status": "successfully rolled out",
    "apply -f": "speculativedeployment.fathom.dev/eagle created",
    "wait sd": "condition met",
    "get sd eagle -o wide": r"eagle +2/2 +AllReplicasReady +(?!3  )\d.* Live ",
    "fathom status": (
        r"llm/eagle is well\.(?s:.*)depth +(?!3, )\d[^\n]*, in force on \d of 2 ready"
    ),
    "fathom report": "Written: eagle.html",
    "get service fathom-page": r"fathom-page +ClusterIP +[\d.]+ ",
}
"""By words of a command: what it prints, at the latest after a while."""
TRIES: Final = 5


def shown() -> list[str]:
    """What is to be typed, in the order of the page."""
    told = [str(each) for each in commands(PAGE) if not each.inline]
    assert [each for each in ELSEWHERE if each not in told] == []
    return [each for each in told if each not in ELSEWHERE]


def until_it_serves() -> list[str]:
    return shown()[: _traffic_at()]


def _traffic_at() -> int:
    (at,) = [at for at, each in enumerate(shown()) if each.startswith(TRAFFIC)]
    return at


async def sets_the_stage(terminal: Terminal, stage: DemoStage) -> None:
    """All that comes before traffic.

    Raises:
        LocalClusterError: the example does not serve in time; the message carries its conditions.
    """
    for command in until_it_serves():
        if " wait " in command:
            await wait_ready(stage.fleet, print)  # it says more than kubectl would
        await _types(terminal, command)


async def looks_on(terminal: Terminal) -> None:
    """Traffic in one terminal, until depth has left the guess, and the rest in another.

    But for the report, which `report_beside_status` types.
    """
    traffic, *rest = shown()[_traffic_at() :]
    async with terminal.running(traffic) as process:
        await _types(terminal, rest[0])
        assert process.stdout is not None
        told = (await process.stdout.readline()).decode()
    assert re.fullmatch(r"\d+ s: \d+ tokens per second, [1-9]\d* requests, none failed\n", told)
    for command in rest[1:]:
        if command != REPORT:
            await _types(terminal, command)


async def _types(terminal: Terminal, command: str) -> None:
    print(f"$ {command}")
    wanted = next((words for part, words in SAYS.items() if part in command), "")
    await terminal.says(command, wanted, seconds=GUARD_SECONDS)


async def report_beside_status(terminal: Terminal, stage: DemoStage) -> tuple[str, dict[str, Any]]:
    """A report, and the status that it was made of."""
    assert REPORT in shown()
    for _ in range(TRIES):
        before = await stage.fleet.resource()
        await _types(terminal, REPORT)
        after = await stage.fleet.resource()
        if before["metadata"]["resourceVersion"] == after["metadata"]["resourceVersion"]:
            break
    else:
        raise AssertionError(f"the status was another one after each of {TRIES} reports")
    status: dict[str, Any] = after["status"]
    return (terminal.folder / "eagle.html").read_text(encoding="utf-8"), status


def facts_of(page: str) -> dict[str, str]:
    """What the page shows at a glance."""
    told = re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", page)
    # Parts of a value that stay on one line are in elements of their own.
    return {unescape(name): unescape(re.sub(r"<[^>]+>", "", value)) for name, value in told}
