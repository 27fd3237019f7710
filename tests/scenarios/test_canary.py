"""A canary in the loop: judged beside what serves, for as long as the spec says."""

import asyncio
import re
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest

from fathom.adapters.ports import PodEndpoint, Sample
from fathom.cluster.kinds import CONFIG_MAP, DEPLOYMENT, POD
from fathom.engine.depth import DepthDocument, flat
from fathom.runtime.informer import informed
from fathom.tuning.interface import TuningDecision, TuningSnapshot
from support.loop_harness import FakeMetrics, LoopHarness, holding, moved

MINUTES = 1440


class Serving(FakeMetrics):
    """Each pod finishes a request a second; of those of one revision some share fails."""

    def __init__(self, harness: LoopHarness) -> None:
        super().__init__(harness.clock)
        self._began_s = harness.clock.at_s
        self.generation = 1
        self.old = harness.kube.names(DEPLOYMENT)[0]
        self.failing = {"old": 0.0, "new": 0.0}

    async def sample(self, pods: Sequence[PodEndpoint]) -> Sample:
        found = await super().sample(pods)
        return Sample(
            tuple(
                replace(
                    each,
                    engine=replace(
                        each.engine,
                        generation_tokens=100 * (each.at_s - self._began_s),
                        finished_requests=each.at_s - self._began_s,
                        failed_requests=(each.at_s - self._began_s)
                        * self.failing["old" if each.pod.startswith(self.old) else "new"],
                    ),
                )
                for each in found.counters
            )
        )


@pytest.fixture
async def trial() -> tuple[LoopHarness, Serving]:
    """Three replicas that serve, and an edit that needs new ones."""
    harness = LoopHarness({"replicas": 3, "rollout.canaryMinutes": MINUTES})
    await harness.until_ready()
    metrics = harness.metrics = Serving(harness)
    harness.edit({"engine.image": "vllm/vllm-openai:v0.32.1"})
    return harness, metrics


async def rollout_after(harness: LoopHarness, minutes: float) -> dict[str, Any]:
    until_s = harness.clock.at_s + 60 * minutes
    while harness.clock.at_s < until_s:
        harness.clock.at_s += min(await harness.tick() or 0, until_s - harness.clock.at_s)
        harness.play_controllers()
    found: dict[str, Any] = harness.status["rollout"]
    return found


async def test_it_is_watched_for_as_long_as_the_spec_says(
    trial: tuple[LoopHarness, Serving],
) -> None:
    harness, _ = trial
    rollout = await rollout_after(harness, 10)
    assert rollout["stage"] == "Canary"
    (left,) = re.findall(r"watched for (\d+) more minutes?\.", rollout["message"])
    assert abs(MINUTES - 10 - int(left)) <= 2


async def test_whose_requests_fail_goes_back(trial: tuple[LoopHarness, Serving]) -> None:
    harness, metrics = trial
    metrics.failing["new"] = 0.2
    rollout = await rollout_after(harness, 10)
    assert (rollout["stage"], rollout["reason"]) == ("RolledBack", "CanaryErrors")
    assert "20.0% of its 60 requests failed" in rollout["message"]
    assert "and 0.0% of the others'" in rollout["message"]


async def test_where_all_fail_alike_it_is_no_worse(trial: tuple[LoopHarness, Serving]) -> None:
    harness, metrics = trial
    metrics.failing |= {"old": 0.2, "new": 0.2}
    assert (await rollout_after(harness, 10))["stage"] == "Canary"


async def test_how_far_it_is_is_told_unless_all_is_paused(
    trial: tuple[LoopHarness, Serving],
) -> None:
    harness, _ = trial
    rollout = await rollout_after(harness, 10)
    progressing = harness.condition("Progressing")
    between = f"From revision {rollout['stable']} to {rollout['revision']}: "
    assert (progressing["status"], progressing["reason"]) == ("True", "CanaryBaking")
    assert progressing["message"].startswith(between)

    harness.edit({"rollout.paused": True})
    await rollout_after(harness, 5)
    assert harness.condition("Progressing")["reason"] == "RolloutPaused"


async def test_a_verdict_that_no_watch_has_told_of_stands_after_a_restart(
    trial: tuple[LoopHarness, Serving],
) -> None:
    """A stream may lose an event: what is recalled is what the API server has."""
    harness, metrics = trial
    assert (await rollout_after(harness, 1))["stage"] == "Canary"
    before_the_verdict = deepcopy(harness.kube.all_of(CONFIG_MAP))
    metrics.failing["new"] = 0.2
    assert (await rollout_after(harness, 10))["stage"] == "RolledBack"
    serving = [pod["metadata"]["name"] for pod in harness.kube.all_of(POD)]

    loop = harness.restart()
    children = harness.world.children
    async with informed(
        children, harness.kube, harness.world.served, lambda _key: loop.wake()
    ) as listed:
        await asyncio.wait([listed])
        (config_maps,) = (feed for feed in children if feed.kind == CONFIG_MAP)
        config_maps.listed((), str(harness.kube.version))
        for each in before_the_verdict:
            config_maps.put(each)
        assert (await rollout_after(harness, 10))["stage"] == "RolledBack"
    assert [pod["metadata"]["name"] for pod in harness.kube.all_of(POD)] == serving


class Deaf(Serving):
    """The new engines take no depth; the others have each as soon as it is written."""

    def __init__(self, harness: LoopHarness) -> None:
        super().__init__(harness)
        self._bench = harness

    async def sample(self, pods: Sequence[PodEndpoint]) -> Sample:
        text = self._bench.kube.find(CONFIG_MAP, "kimi-depth")["data"]["depth.json"]
        document = DepthDocument.from_json(text)
        assert document is not None
        return Sample(
            tuple(
                replace(
                    each,
                    depth_generation=document.generation if each.pod.startswith(self.old) else 0,
                )
                for each in (await super().sample(pods)).counters
            )
        )


@pytest.mark.parametrize("every_s", [1e6, 240.0, 60.0])
@pytest.mark.parametrize("canary_minutes", [0, 20])
async def test_one_that_obeys_no_depth_goes_back_however_often_depth_is_written(
    every_s: float, canary_minutes: int
) -> None:
    def decide(snapshot: TuningSnapshot) -> TuningDecision:
        found, document = holding(snapshot), snapshot.document
        if document is None or snapshot.now_s - snapshot.document_written_at_s < every_s:
            return found
        newer = document.generation + 1
        schedule = flat((1, 3)[newer % 2], snapshot.settings.max_batch)
        return moved(found, DepthDocument(generation=newer, schedule=schedule))

    harness = LoopHarness({"replicas": 3, "rollout.canaryMinutes": canary_minutes}, decide=decide)
    await harness.until_ready()
    harness.metrics = Deaf(harness)
    harness.edit({"engine.image": "vllm/vllm-openai:v0.32.1"})
    rollout = await rollout_after(harness, 15)
    assert (rollout["stage"], rollout["reason"]) == ("RolledBack", "DepthNotObeyed")
    assert harness.kube.names(DEPLOYMENT) == [harness.metrics.old]


class Unread(Deaf):
    """The new engines answer a while after they have become ready, or never."""

    def __init__(self, harness: LoopHarness, unread_s: float) -> None:
        super().__init__(harness)
        self._unread_s = unread_s
        self._asked_at_s: float | None = None

    async def sample(self, pods: Sequence[PodEndpoint]) -> Sample:
        found = (await super().sample(pods)).counters
        new = [each for each in found if not each.pod.startswith(self.old)]
        if new and self._asked_at_s is None:
            self._asked_at_s = new[0].at_s
        return Sample(
            tuple(
                each
                for each in found
                if each not in new or each.at_s - (self._asked_at_s or 0.0) >= self._unread_s
            )
        )


@pytest.mark.parametrize(
    ("unread_s", "ends"), [(60.0, "DepthNotObeyed"), (float("inf"), "CanaryAsGood")]
)
async def test_one_that_was_not_read_yet_is_not_taken_for_one_that_obeys(
    unread_s: float, ends: str
) -> None:
    """It has two minutes to be read; who wants no comparison, and has no metrics, goes on then."""
    harness = LoopHarness({"replicas": 3, "rollout.canaryMinutes": 0})
    await harness.until_ready()
    harness.metrics = Unread(harness, unread_s)
    harness.edit({"engine.image": "vllm/vllm-openai:v0.32.1"})
    rollout: dict[str, Any] = {}
    for _ in range(20):
        rollout = await rollout_after(harness, 0.25)
        if "has not reported yet which depth" in rollout["message"]:
            break
    assert rollout["stage"] == "Canary"
    assert (await rollout_after(harness, 15))["reason"] == ends


class Late(Deaf):
    """The new engine has been read once, before it took its first depth; then it can be blind."""

    blind = False

    async def sample(self, pods: Sequence[PodEndpoint]) -> Sample:
        found = await super().sample(pods)
        if not self.blind:
            return found
        return Sample(tuple(each for each in found.counters if each.pod.startswith(self.old)))


async def behind_once(**changes: Any) -> tuple[LoopHarness, Late]:
    """A canary that was found behind the document a moment ago."""
    harness = LoopHarness({"replicas": 3, "rollout.canaryMinutes": 20, **changes})
    await harness.until_ready()
    metrics = harness.metrics = Late(harness)
    harness.edit({"engine.image": "vllm/vllm-openai:v0.32.1"})
    for _ in range(200):
        rollout = await rollout_after(harness, 1 / 60)
        if "any depth in force" in rollout["message"]:
            return harness, metrics
    raise AssertionError(rollout)


async def test_who_cannot_be_read_may_have_obeyed_meanwhile() -> None:
    harness, metrics = await behind_once()
    metrics.blind = True
    assert (await rollout_after(harness, 8))["stage"] == "Canary"
    harness.restart()
    assert (await rollout_after(harness, 1))["stage"] == "Canary"


@pytest.mark.parametrize("how", ["paused", "away"])
async def test_a_pause_uses_up_no_patience_with_one_that_does_not_obey_yet(how: str) -> None:
    harness, _ = await behind_once()
    if how == "paused":
        harness.edit({"rollout.paused": True})
        await rollout_after(harness, 10)
        harness.edit({"rollout.paused": False})
    else:
        harness.clock.at_s += 900
        harness.restart()
    assert (await rollout_after(harness, 1))["stage"] == "Canary"
    assert (await rollout_after(harness, 10))["reason"] == "DepthNotObeyed"
