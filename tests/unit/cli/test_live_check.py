"""`fathom check --live`: the request it files, what it waits for, and what it prints."""

import asyncio
import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from io import StringIO
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from fathom.adapters.ports import KubeError
from fathom.api import names
from fathom.api.status import QualityResult, QualityStatus
from fathom.cli.live_check import NoResultError, result_of, shown
from fathom.cli.main import app
from fathom.cluster.kinds import CONFIG_MAP, SPECULATIVE_DEPLOYMENT, Kind, ObjectKey
from fathom.quality.check import QUALITY_KEY, QualityCheck
from manifest_samples import manifest
from support.fake_kube import FakeKube
from support.loop_harness import ManualClock

KEY = ObjectKey("llm", "kimi")
LOSSLESS = {
    "requestId": "one",
    "at": "2027-01-15T08:00:30Z",
    "result": "Lossless",
    "prompts": 8,
    "tokens": 512,
    "ties": 1,
    "message": "At depth 5 pod-b says what pod-a says at depth 0: 512 tokens of 8 prompts.",
}


@dataclass
class Wait:
    """A user who waits, and an operator that does something after each second."""

    operator: Callable[["Wait"], None] = lambda _: None
    kube: FakeKube = field(default_factory=FakeKube)
    clock: ManualClock = field(default_factory=ManualClock)
    seconds: int = 0
    said: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.kube.put(SPECULATIVE_DEPLOYMENT, manifest())

    async def _pause(self, seconds: float) -> None:
        self.clock.at_s += seconds
        self.seconds += 1
        self.operator(self)

    @property
    def resource(self) -> dict[str, Any]:
        return self.kube.find(SPECULATIVE_DEPLOYMENT, "kimi")

    @property
    def annotations(self) -> dict[str, str]:
        found: dict[str, str] = self.resource["metadata"].get("annotations", {})
        return found

    def edit(self, **changes: Any) -> None:
        self.kube.put(SPECULATIVE_DEPLOYMENT, copy.deepcopy(self.resource) | changes)

    def keep(self, check: QualityCheck) -> None:
        config_map = {
            "metadata": {"name": "kimi-tuning", "namespace": "llm"},
            "data": {QUALITY_KEY: check.to_json()},
        }
        self.kube.put(CONFIG_MAP, config_map)

    async def result(self, wait_s: float = 30.0) -> QualityStatus:
        return await result_of(
            self.kube,
            KEY,
            request_id="one",
            wait_s=wait_s,
            clock=self.clock,
            pause=self._pause,
            tell=self.said.append,
        )


async def test_the_request_is_an_annotation_and_the_answer_carries_its_id() -> None:
    def operator(wait: Wait) -> None:
        assert wait.annotations == {names.ANNOTATION_CHECK_QUALITY: "one"}
        if wait.seconds == 2:
            wait.edit(status={"quality": LOSSLESS | {"requestId": "earlier"}})
        if wait.seconds == 4:
            wait.edit(status={"quality": LOSSLESS})

    wait = Wait(operator)

    result = await wait.result()

    assert (result.request_id, result.result, wait.seconds) == ("one", QualityResult.LOSSLESS, 4)
    assert [each.verb for each in wait.kube.writes] == ["patch"]
    # It stays, as kubectl's restartedAt does: the operator knows that it has answered it.
    assert wait.annotations == {names.ANNOTATION_CHECK_QUALITY: "one"}


async def test_what_the_operator_is_at_is_told_once() -> None:
    held = QualityCheck(
        request_id="one", since_s=0.0, reference="pod-a", speculating="pod-b", depth=5
    )

    def operator(wait: Wait) -> None:
        if wait.seconds == 2:
            wait.keep(held)
        if wait.seconds == 4:
            wait.keep(
                QualityCheck(
                    request_id="one",
                    since_s=0.0,
                    reference="pod-a",
                    speculating="pod-b",
                    depth=5,
                    asking=True,
                )
            )
        if wait.seconds == 6:
            wait.edit(status={"quality": LOSSLESS})

    wait = Wait(operator)
    await wait.result()

    assert wait.said == [
        "Waits for the operator.",
        "Waits for pod-a at depth 0 and pod-b at depth 5.",
        "Asks 8 prompts of pod-a at depth 0 and pod-b at depth 5.",
    ]


async def test_without_an_answer_in_time_the_request_is_withdrawn() -> None:
    wait = Wait()

    with pytest.raises(NoResultError, match="has not answered within 30 s, and the request was"):
        await wait.result(30.0)

    assert wait.seconds == 30
    assert wait.annotations == {}


async def test_ctrl_c_withdraws_the_request() -> None:
    def operator(_: Wait) -> None:
        raise asyncio.CancelledError

    wait = Wait(operator)
    with pytest.raises(asyncio.CancelledError):
        await wait.result()

    assert wait.annotations == {}


async def test_somebody_elses_request_is_left_alone() -> None:
    theirs = {names.ANNOTATION_CHECK_QUALITY: "two"}

    def operator(wait: Wait) -> None:
        metadata = copy.deepcopy(wait.resource["metadata"]) | {"annotations": theirs}
        wait.edit(metadata=metadata)

    wait = Wait(operator)
    with pytest.raises(NoResultError, match="another one replaced it"):
        await wait.result()

    assert wait.annotations == theirs


async def test_a_resource_that_is_not_there_or_goes() -> None:
    wait = Wait(lambda wait: wait.kube.remove(SPECULATIVE_DEPLOYMENT, "llm", "kimi"))
    with pytest.raises(NoResultError, match=r"llm/kimi was deleted meanwhile\."):
        await wait.result()

    with pytest.raises(NoResultError, match=r"There is no SpeculativeDeployment llm/kimi\."):
        await wait.result()


def failing(kind: Kind, error: KubeError) -> Callable[[str, Kind], KubeError | None]:
    return lambda verb, which: error if (verb, which) == ("get", kind) else None


async def test_a_server_that_is_gone_for_a_moment_is_waited_for() -> None:
    def operator(wait: Wait) -> None:
        gone = failing(SPECULATIVE_DEPLOYMENT, KubeError(503, "later"))
        wait.kube.fail = gone if wait.seconds < 3 else lambda *_: None
        if wait.seconds == 3:
            wait.edit(status={"quality": LOSSLESS})

    assert (await Wait(operator).result()).result is QualityResult.LOSSLESS


async def test_who_may_not_read_the_resource_does_not_wait() -> None:
    def operator(wait: Wait) -> None:
        wait.kube.fail = failing(SPECULATIVE_DEPLOYMENT, KubeError(403, "no"))

    wait = Wait(operator)
    with pytest.raises(KubeError, match="no"):
        await wait.result()
    assert wait.seconds == 1


async def test_who_may_not_read_config_maps_waits_without_progress() -> None:
    def operator(wait: Wait) -> None:
        wait.kube.fail = failing(CONFIG_MAP, KubeError(403, "no"))
        if wait.seconds == 3:
            wait.edit(status={"quality": LOSSLESS})

    wait = Wait(operator)
    assert (await wait.result()).result is QualityResult.LOSSLESS
    assert wait.said == ["Waits for the operator."]


def printed(found: QualityStatus) -> tuple[int, list[str]]:
    console = Console(file=StringIO(), width=100, color_system=None)
    code = shown(found, console)
    assert isinstance(console.file, StringIO)
    return code, [line.rstrip() for line in console.file.getvalue().splitlines()]


@pytest.mark.parametrize(
    ("result", "code", "counts"),
    [("Lossless", 0, "8 512 1"), ("Differs", 1, "8 512 1"), ("NotChecked", 2, "– – –")],
)
def test_each_result_is_printed_and_has_its_exit_code(result: str, code: int, counts: str) -> None:
    found = QualityStatus.model_validate(LOSSLESS | {"result": result, "message": "[so] it is."})

    exit_code, (header, row, message) = printed(found)

    assert exit_code == code
    assert header.split() == ["RESULT", "PROMPTS", "TOKENS", "TIES", "AT"]
    assert row.split() == [result, *counts.split(), "2027-01-15T08:00:30Z"]
    assert message == "[so] it is."


@pytest.mark.parametrize("arguments", [[], ["-f", "a.yaml", "--live", "kimi"]])
def test_it_is_either_files_or_a_running_one(arguments: list[str]) -> None:
    result = CliRunner().invoke(app, ["check", *arguments])

    assert result.exit_code == 2
    assert "Name either files (-f FILE) or a running SpeculativeDeployment" in result.stderr
