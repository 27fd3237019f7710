"""One replica that has one thing otherwise than the others: begun, judged, kept, ended."""

import json
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from fathom.adapters.ports import PodEndpoint, Sample
from fathom.cli.rollout import retried
from fathom.cluster.kinds import CONFIG_MAP, DEPLOYMENT, EVENT, POD
from fathom.measurement.counters import Cell, CellCounts, EngineCounts, PodCounters, StepKind
from fathom.reconcile.checkpoint import Checkpoint
from support.loop_harness import KEY, FakeMetrics, LoopHarness

CANARY = {"speculation.adaptiveVerification": "Canary"}
FLEET = {"replicas": 3, "engine.attentionBackend": "flashinfer_mla"}
MINUTES = 20


class Serving(FakeMetrics):
    """Each pod finishes a request a second; those with adaptive verification at another speed."""

    def __init__(self, harness: LoopHarness, *, faster: float = 0.0, scatter: float = 0.01) -> None:
        super().__init__(harness.clock)
        self._bench = harness
        self._scatter, self._random = scatter, random.Random(5)
        self._counts: dict[str, tuple[float, EngineCounts]] = {}
        self.faster = faster
        self.failing = 0.0
        self.generation = 1

    async def sample(self, pods: Sequence[PodEndpoint]) -> Sample:
        found = await super().sample(pods)
        with_it = pods_with_it(self._bench)
        return Sample(
            tuple(
                replace(each, engine=self._counted(each.pod, each.at_s, arm=each.pod in with_it))
                for each in found.counters
            )
        )

    def _counted(self, pod: str, at_s: float, *, arm: bool) -> EngineCounts:
        since_s, before = self._counts.get(pod, (at_s, EngineCounts()))
        requests = at_s - since_s
        speed = self._random.gauss(1 + (self.faster if arm else 0.0), self._scatter)
        counts = replace(
            before,
            generation_tokens=before.generation_tokens + 100 * requests,
            finished_requests=before.finished_requests + requests,
            failed_requests=before.failed_requests + (self.failing if arm else 0) * requests,
            tpot_seconds_sum=before.tpot_seconds_sum + 0.02 * requests / speed,
            tpot_count=before.tpot_count + requests,
            requests_running=8,
        )
        self._counts[pod] = at_s, counts
        return counts


def verifies_adaptively(deployment: dict[str, Any]) -> bool:
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    return "enable_adaptive_verification" in " ".join(container["args"])


def pods_with_it(harness: LoopHarness) -> set[str]:
    """Names of the pods that have adaptive verification."""
    return {
        pod["metadata"]["name"]
        for deployment in harness.kube.all_of(DEPLOYMENT)
        if verifies_adaptively(deployment)
        for pod in harness.pods_of(deployment["metadata"]["name"])
    }


def replicas(harness: LoopHarness) -> tuple[int, int]:
    """Replicas without adaptive verification, and those with it."""
    asked = {False: 0, True: 0}
    for deployment in harness.kube.all_of(DEPLOYMENT):
        asked[verifies_adaptively(deployment)] += deployment["spec"]["replicas"]
    return asked[False], asked[True]


async def pass_minutes(harness: LoopHarness, minutes: float) -> None:
    until_s = harness.clock.at_s + 60 * minutes
    while harness.clock.at_s < until_s:
        harness.clock.at_s += min(await harness.tick() or 0, until_s - harness.clock.at_s)
        harness.play_controllers()


def events(harness: LoopHarness, reason: str) -> list[str]:
    bodies = [each.body for each in harness.kube.writes if each.kind == EVENT.kind and each.body]
    return [str(each["message"]) for each in bodies if each["reason"] == reason]


def compared(harness: LoopHarness) -> dict[str, Any]:
    found: dict[str, Any] = harness.status["adaptiveVerification"]
    return found


async def comparing(**metrics: float) -> LoopHarness:
    """A fleet of three whose spec says Canary since a moment ago."""
    harness = LoopHarness(FLEET)
    await harness.until_ready()
    harness.metrics = Serving(harness, **metrics)
    harness.edit(CANARY)
    return harness


async def test_one_replica_has_it_and_the_others_stay() -> None:
    harness = await comparing()
    before = {pod["metadata"]["name"] for pod in harness.kube.all_of(DEPLOYMENT)}
    await pass_minutes(harness, 5)
    assert replicas(harness) == (2, 1)
    assert before < {each["metadata"]["name"] for each in harness.kube.all_of(DEPLOYMENT)}
    assert compared(harness)["state"] == "Comparing"
    assert harness.condition("Progressing")["reason"] == "Comparing"
    assert harness.condition("Progressing")["status"] == "False"
    assert harness.condition("Degraded")["status"] == "False"
    assert harness.status["engine"]["actuation"] == "Live"


@pytest.mark.parametrize(
    ("faster", "result", "edit"),
    [
        (0.1, "Faster", "to Enabled."),
        (-0.1, "Slower", "to Disabled."),
        (0.0, "NoDifference", "to Disabled."),
    ],
)
async def test_what_it_is_worth_stands_in_the_status_and_no_other_replica_follows(
    faster: float, result: str, edit: str
) -> None:
    harness = await comparing(faster=faster)
    await pass_minutes(harness, 10 * MINUTES)
    found = compared(harness)
    assert (found["state"], found["result"]) == ("Compared", result)
    assert abs(float(found["percent"]) - 100 * faster) < 1
    low, high = map(float, found["intervalPercent"].split(" to "))
    assert low < float(found["percent"]) < high
    assert found["message"].endswith(edit)
    assert replicas(harness) == (2, 1)
    (told,) = events(harness, "Compared")
    assert found["intervalPercent"] in told


async def test_what_cannot_be_told_is_said_once_and_may_yet_be_told() -> None:
    harness = await comparing(scatter=0.3)
    await pass_minutes(harness, 3.5 * MINUTES)
    assert compared(harness)["result"] == "CannotTell"
    assert len(events(harness, "Compared")) == 1
    metrics = harness.metrics
    assert isinstance(metrics, Serving)
    metrics.faster = 0.5
    await pass_minutes(harness, 10 * MINUTES)
    assert compared(harness)["result"] == "Faster"
    assert len(events(harness, "Compared")) == 2


async def test_the_result_survives_the_operator() -> None:
    harness = await comparing(faster=0.1)
    await pass_minutes(harness, 2 * MINUTES)
    before, writes = compared(harness), len(harness.kube.writes)
    harness.restart()
    await pass_minutes(harness, 2 * MINUTES)
    assert compared(harness) == before
    assert len(events(harness, "Compared")) == 1
    assert not [each for each in harness.kube.writes[writes:] if each.kind == DEPLOYMENT.kind]


async def test_a_lost_record_begins_the_comparison_anew_with_the_same_pods() -> None:
    harness = await comparing(faster=0.1)
    await pass_minutes(harness, 2 * MINUTES)
    pods = compared(harness)["pod"]
    harness.kube.remove(CONFIG_MAP, "llm", "kimi-tuning")
    harness.restart()
    await pass_minutes(harness, 1)
    assert replicas(harness) == (2, 1)
    assert (compared(harness)["state"], compared(harness)["pod"]) == ("Comparing", pods)
    await pass_minutes(harness, 2 * MINUTES)
    assert compared(harness)["result"] == "Faster"


async def test_enabled_makes_it_the_canary_of_a_rollout_and_all_follow() -> None:
    harness = await comparing(faster=0.1)
    await pass_minutes(harness, 2 * MINUTES)
    revision, pod = compared(harness)["revision"], compared(harness)["pod"]
    harness.edit({"speculation.adaptiveVerification": "Enabled"})
    await harness.until_rolled()
    assert replicas(harness) == (0, 3)
    assert revision in harness.kube.names(DEPLOYMENT)[0]
    assert pod in {each["metadata"]["name"] for each in harness.pods_of("kimi-")}
    assert "adaptiveVerification" not in harness.status


async def test_enabled_goes_back_where_it_was_shown_to_be_slower() -> None:
    harness = await comparing(faster=-0.1)
    await pass_minutes(harness, 2 * MINUTES)
    harness.edit({"speculation.adaptiveVerification": "Enabled"})
    await pass_minutes(harness, 5)
    assert replicas(harness) == (3, 0)
    assert harness.status["rollout"]["reason"] == "CanarySlower"


async def test_disabled_gives_its_place_back() -> None:
    harness = await comparing(faster=0.1)
    await pass_minutes(harness, 2 * MINUTES)
    harness.edit({"speculation.adaptiveVerification": "Disabled"})
    await harness.until_rolled()
    assert replicas(harness) == (3, 0)
    assert len(harness.kube.names(DEPLOYMENT)) == 1
    assert "adaptiveVerification" not in harness.status


async def test_one_that_crashes_is_given_up_and_the_fleet_is_whole() -> None:
    harness = await comparing()
    await pass_minutes(harness, 5)
    crashed = [{"name": "vllm", "restartCount": 1, "state": {}}]
    harness.set_ready(compared(harness)["pod"], containerStatuses=crashed)
    await pass_minutes(harness, 5)
    found = compared(harness)
    assert (found["state"], found["reason"]) == ("Failed", "CanaryCrashed")
    assert "to try it once more" in found["message"]
    assert replicas(harness) == (3, 0)
    assert len(events(harness, "CanaryCrashed")) == 1
    assert harness.condition("Degraded")["status"] == "False"
    await pass_minutes(harness, MINUTES)
    assert replicas(harness) == (3, 0)
    harness.edit({"speculation.adaptiveVerification": "Disabled"})
    await pass_minutes(harness, 1)
    harness.edit(CANARY)
    await pass_minutes(harness, 2)
    assert replicas(harness) == (2, 1)


async def test_one_whose_requests_fail_is_given_up() -> None:
    harness = await comparing()
    metrics = harness.metrics
    assert isinstance(metrics, Serving)
    metrics.failing = 0.2
    await pass_minutes(harness, 10)
    assert (compared(harness)["state"], compared(harness)["reason"]) == ("Failed", "CanaryErrors")
    assert replicas(harness) == (3, 0)


async def test_one_that_was_given_up_is_compared_again_when_somebody_asks() -> None:
    harness = await comparing()
    harness.metrics.failing = 0.2
    await pass_minutes(harness, 15)
    assert compared(harness)["state"] == "Failed"

    harness.metrics.failing = 0.0
    assert await retried(harness.kube, KEY, harness.clock.at_s)
    harness.loop.wake()
    await pass_minutes(harness, 5)
    assert compared(harness)["state"] == "Comparing"


async def test_a_rollout_goes_first_and_the_comparison_begins_anew_behind_it() -> None:
    harness = await comparing(faster=0.1)
    await pass_minutes(harness, 2 * MINUTES)
    one = compared(harness)["revision"]
    harness.edit({"engine.image": "vllm/vllm-openai:v0.32.1"})
    await pass_minutes(harness, 2)
    assert compared(harness)["state"] == "Waiting"
    assert compared(harness)["message"] == "a rollout is under way, and goes first."
    assert replicas(harness) == (3, 0)
    assert harness.status["rollout"]["stage"] == "Canary"
    for _ in range(2 * MINUTES):
        if compared(harness)["state"] == "Comparing":
            break
        await pass_minutes(harness, 1)
    assert replicas(harness) == (2, 1)
    assert harness.status["rollout"]["stage"] == "Complete"
    assert compared(harness)["state"] == "Comparing"
    assert compared(harness)["revision"] != one
    await pass_minutes(harness, 2 * MINUTES)
    assert compared(harness)["result"] == "Faster"


@pytest.mark.parametrize(
    ("changes", "cure"),
    [({"replicas": 1}, "spec.replicas"), ({"rollout.canaryMinutes": 0}, "canaryMinutes")],
)
async def test_without_a_neighbour_or_time_it_waits_and_says_for_what(
    changes: dict[str, Any], cure: str
) -> None:
    harness = LoopHarness({**FLEET, **CANARY, **changes})
    await harness.until_ready()
    assert compared(harness)["state"] == "Waiting"
    assert cure in compared(harness)["message"]
    assert replicas(harness)[1] == 0


async def test_a_single_replica_is_compared_where_there_is_room_for_one_more() -> None:
    harness = LoopHarness({**FLEET, **CANARY, "replicas": 1, "rollout.maxSurge": 1})
    await harness.until_ready()
    await pass_minutes(harness, 1)
    assert replicas(harness) == (1, 1)


async def test_scaled_to_one_it_gives_way_and_comes_back_with_the_second() -> None:
    harness = await comparing()
    await pass_minutes(harness, 5)
    harness.edit({"replicas": 1})
    await pass_minutes(harness, 2)
    assert replicas(harness) == (1, 0)
    harness.edit({"replicas": 4})
    await pass_minutes(harness, 2)
    assert replicas(harness) == (3, 1)


async def test_a_new_resource_starts_all_replicas_without_it_first() -> None:
    harness = LoopHarness({**FLEET, **CANARY})
    await harness.tick()
    assert replicas(harness) == (3, 0)
    await harness.until_ready()
    await pass_minutes(harness, 1)
    assert replicas(harness) == (2, 1)


async def test_no_other_replica_follows_where_the_others_are_taken_away_by_hand() -> None:
    harness = await comparing()
    await pass_minutes(harness, 5)
    (fleet,) = [
        each["metadata"]["name"]
        for each in harness.kube.all_of(DEPLOYMENT)
        if not verifies_adaptively(each)
    ]
    harness.kube.remove(DEPLOYMENT, "llm", fleet)
    for pod in harness.pods_of(fleet):
        harness.kube.remove(POD, "llm", pod["metadata"]["name"])
    await pass_minutes(harness, 5)
    assert replicas(harness) == (2, 1)


async def test_a_fathom_that_calls_it_otherwise_goes_on_with_the_same_pods() -> None:
    harness = await comparing(faster=0.1)
    await pass_minutes(harness, 2 * MINUTES)
    revision = compared(harness)["revision"]
    renamed = json.loads(
        json.dumps(harness.kube.all_of(DEPLOYMENT) + harness.kube.all_of(POD)).replace(
            revision, "0123abcd"
        )
    )
    for kind in (DEPLOYMENT, POD):
        for each in harness.kube.names(kind):
            harness.kube.remove(kind, "llm", each)
    for each in renamed:
        harness.kube.put(DEPLOYMENT if each["kind"] == "Deployment" else POD, each)
    found = harness.kube.find(CONFIG_MAP, "kimi-tuning")
    data = {key: text.replace(revision, "0123abcd") for key, text in found["data"].items()}
    harness.kube.put(CONFIG_MAP, {**found, "data": data})
    harness.restart()
    await pass_minutes(harness, 5)
    assert compared(harness)["revision"] == "0123abcd"
    assert compared(harness)["result"] == "Faster"
    harness.edit({"speculation.adaptiveVerification": "Enabled"})
    await harness.until_rolled()
    assert harness.kube.names(DEPLOYMENT) == ["kimi-0123abcd"]


async def test_it_begins_when_every_replica_is_ready() -> None:
    harness = LoopHarness(FLEET)
    await harness.until_ready()
    (first, *_) = [pod["metadata"]["name"] for pod in harness.kube.all_of(POD)]
    harness.set_ready(first, ready=False)
    harness.edit(CANARY)
    await harness.tick()
    assert compared(harness)["message"] == "it begins when every replica is ready."
    await pass_minutes(harness, 2)
    assert replicas(harness) == (2, 1)


async def test_what_the_others_are_is_what_is_gone_back_to() -> None:
    harness = await comparing()
    await pass_minutes(harness, 5)
    checkpoint = Checkpoint.of(harness.kube.find(CONFIG_MAP, "kimi-tuning")["data"])
    assert checkpoint.good_spec is not None
    assert "Canary" in checkpoint.good_spec
    assert checkpoint.good_revision != compared(harness)["revision"]
    harness.edit({"engine.image": "not an image"})
    await pass_minutes(harness, 5)
    assert harness.condition("Degraded")["reason"] == "InvalidSpec"
    assert replicas(harness) == (2, 1)


DRAFTING = {"speculation.drafting": "Canary"}
BATCH = 8


class Counting(FakeMetrics):
    """Each pod serves eight requests at a time; those without drafts at a speed of their own."""

    def __init__(self, harness: LoopHarness, *, without: float) -> None:
        super().__init__(harness.clock)
        self._bench, self._without = harness, without
        self._cells: dict[str, tuple[float, CellCounts]] = {}
        self._random = random.Random(5)

    async def sample(self, pods: Sequence[PodEndpoint]) -> Sample:
        found = await super().sample(pods)
        plain = pods_without_drafts(self._bench)
        return Sample(
            tuple(self._counted(each, drafts=each.pod not in plain) for each in found.counters)
        )

    def _counted(self, page: PodCounters, *, drafts: bool) -> PodCounters:
        since_s, before = self._cells.get(page.pod, (page.at_s, CellCounts()))
        seconds = page.at_s - since_s
        per_step, step_s = (3.0, 0.03) if drafts else (1.0, 0.01 / self._without)
        steps = seconds / step_s * self._random.gauss(1, 0.005)
        counts = before + CellCounts(steps, seconds, steps * per_step * BATCH, steps * BATCH)
        self._cells[page.pod] = page.at_s, counts
        return replace(
            page,
            live_depth=drafts,
            depth_generation=page.depth_generation if drafts else 0,
            engine=replace(page.engine, generation_tokens=counts.tokens, requests_running=BATCH),
            cells={Cell(BATCH, 3 if drafts else 0, StepKind.DECODE): counts},
        )


def pods_without_drafts(harness: LoopHarness) -> set[str]:
    return {
        pod["metadata"]["name"]
        for pod in harness.kube.all_of(POD)
        if "--speculative-config" not in str(pod["spec"])
    }


@pytest.mark.parametrize(
    ("without", "result", "edit"),
    [
        (1.5, "Faster", "To run all replicas without drafts, set {} to Disabled."),
        (0.6, "Slower", "That replica is slower than the others. To end it, set {} to Enabled."),
    ],
)
async def test_what_drafts_are_worth_is_measured_in_one_replica_without(
    without: float, result: str, edit: str
) -> None:
    harness = LoopHarness({"replicas": 3})
    await harness.until_ready()
    harness.metrics = Counting(harness, without=without)
    harness.edit(DRAFTING)
    await pass_minutes(harness, 2 * MINUTES)
    found = harness.status["drafting"]
    assert (found["state"], found["result"]) == ("Compared", result)
    assert abs(float(found["percent"]) - 100 * (without - 1)) < 2
    assert found["message"].endswith(edit.format("spec.speculation.drafting"))
    assert pods_without_drafts(harness) == {found["pod"]}
    assert len(harness.kube.all_of(POD)) == 3
    assert "adaptiveVerification" not in harness.status
    # Depth is tuned by those that draft.
    assert harness.status["engine"]["actuation"] == "Live"
    assert harness.condition("Tuning")["reason"] != "DraftingDisabled"
    assert harness.condition("Degraded")["status"] == "False"

    harness.edit({"speculation.drafting": "Enabled"})
    await pass_minutes(harness, 5)
    assert not pods_without_drafts(harness)
    assert "drafting" not in harness.status
    assert any("without drafts" in each for each in events(harness, "Reverted"))


async def test_a_replica_without_drafts_is_the_canary_once_none_is_to_draft() -> None:
    harness = LoopHarness({"replicas": 3})
    await harness.until_ready()
    harness.metrics = Counting(harness, without=1.5)
    harness.edit(DRAFTING)
    await pass_minutes(harness, 2 * MINUTES)
    pod = harness.status["drafting"]["pod"]
    harness.edit({"speculation.drafting": "Disabled"})
    await harness.until_rolled()
    assert pod in pods_without_drafts(harness)
    assert len(pods_without_drafts(harness)) == 3


async def test_from_one_comparison_to_the_other_there_is_one_replica_at_a_time() -> None:
    harness = await comparing()
    await pass_minutes(harness, 5)
    assert replicas(harness) == (2, 1)
    harness.edit({"speculation.adaptiveVerification": "Disabled", **DRAFTING})
    for _ in range(10):
        await pass_minutes(harness, 1)
        assert len(pods_with_it(harness)) + len(pods_without_drafts(harness)) <= 1
    assert len(pods_without_drafts(harness)) == 1
    assert harness.status["drafting"]["state"] == "Comparing"


async def test_two_comparisons_at_once_are_refused_and_what_runs_goes_on() -> None:
    harness = await comparing()
    await pass_minutes(harness, 5)
    harness.edit(DRAFTING)
    await pass_minutes(harness, 2)
    refused = harness.condition("Degraded")
    assert refused["reason"] == "InvalidSpec"
    assert "one thing is compared at a time" in refused["message"]
    assert replicas(harness) == (2, 1)
