"""Somebody who types the quickstart as it stands there: so the fleet of these tests comes to be."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from html import unescape
from typing import Any, Final

from e2e.observation import GUARD_SECONDS
from fathom.api.status import ComparisonStatus
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
ADOPTED: Final = "get sd eagle --watch"
SENT: Final = r"\d+ s: \d+ tokens per second, \d+ requests?, none failed\n"
"""What traffic says of each ten seconds."""
SAYS: Final = {
    "rollout status": "successfully rolled out",
    "apply -f": "speculativedeployment.fathom.dev/eagle created",
    "wait sd": "condition met",
    "get sd eagle -o wide": r"eagle +2/2 +AllReplicasReady +(?!3  )\d.* Live ",
    "get sd eagle -o jsonpath": r"^\+\d.* kubectl patch .*",
    " patch ": "speculativedeployment.fathom.dev/eagle patched",
    ADOPTED: r"eagle +1/2 (?s:.*)eagle +2/2 +AllReplicasReady ",
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


@dataclass(frozen=True, kw_only=True)
class Acts:
    """The page, cut where somebody sends other traffic, and where they stop."""

    before: list[str]
    depth: list[str]
    """With traffic, in another terminal."""
    draft: list[str]
    """Likewise."""
    after: list[str]


def acts() -> Acts:
    typed = shown()
    first, second = (at for at, each in enumerate(typed) if each.startswith(TRAFFIC))
    (last,) = (at for at, each in enumerate(typed) if ADOPTED in each)
    return Acts(
        before=typed[:first],
        depth=typed[first:second],
        draft=typed[second : last + 1],
        after=typed[last + 1 :],
    )


async def sets_the_stage(terminal: Terminal, stage: DemoStage) -> None:
    """All that comes before traffic.

    Raises:
        LocalClusterError: the example does not serve in time; the message carries its conditions.
    """
    for command in acts().before:
        if " wait " in command:
            await wait_ready(stage.fleet, print)  # it says more than kubectl would
        await _types(terminal, command)


async def looks_on(terminal: Terminal) -> None:
    """Traffic in one terminal, until depth has left the guess, which another one shows."""
    traffic, *rest = acts().depth
    async with _sending(terminal, traffic):
        for command in rest:
            await _types(terminal, command)


async def tries_another_draft(terminal: Terminal, stage: DemoStage) -> ComparisonStatus:
    """A trial under traffic, and the adoption of its draft; the trial's status before that."""
    traffic, tries, asks, *adopts = acts().draft
    async with _sending(terminal, traffic):
        await _types(terminal, tries)
        await _types(terminal, asks)
        trial = (await stage.fleet.resource())["status"]["draftTrial"]
        assert trial["message"].endswith(adopts[0])
        for command in adopts:
            await _types(terminal, command)
    return ComparisonStatus.model_validate(trial)


async def reads_on(terminal: Terminal) -> None:
    """The rest of the page, but for the report, which `report_beside_status` types."""
    for command in acts().after:
        if command != REPORT:
            await _types(terminal, command)


@asynccontextmanager
async def _sending(terminal: Terminal, traffic: str) -> AsyncIterator[None]:
    """Traffic in a terminal of its own, of which no request fails."""
    async with terminal.running(traffic) as process:
        yield
        assert process.stdout is not None
        # It has said much by now, and goes on: a line is there, or comes.
        lines = [(await process.stdout.readline()).decode()]
    lines += (await process.stdout.read()).decode().splitlines(keepends=True)
    *told, in_all = lines
    assert [each for each in told if not re.fullmatch(SENT, each)] == []
    assert re.match(r"[1-9]\d* requests in \d+ s, none failed\. ", in_all)


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
