"""Another draft in one replica: begun, compared, adopted by an edit, or taken back."""

import random
from collections.abc import Sequence
from dataclasses import replace
from math import inf
from typing import Any, Final

import pytest

from fathom.adapters.ports import PodEndpoint, Sample
from fathom.cluster.kinds import CONFIG_MAP, DEPLOYMENT, JOB, POD
from fathom.measurement.counters import Cell, CellCounts, Histogram, PodCounters, StepKind
from fathom.model_facts import ModelConfig, ModelFacts
from fathom.model_refs import ModelRef
from fathom.runtime.caches import NOT_YET
from scenarios.test_arm import events, pass_minutes
from scenarios.test_weights import COMMIT, DRAFT_COMMIT, NEWER, RESULT, env, fetched, finish
from support.loop_harness import FakeMetrics, LoopHarness
from support.played_cluster import PlayedCluster

OLD: Final = "lightseekorg/kimi-k2.6-eagle3.1-mla"
NEW: Final = "someone/kimi-k2.6-trained"
TRIAL: Final = {"draft.trial": {"id": NEW}}
ADOPTED: Final = {"draft": {"id": NEW}}
BATCH: Final = 8


def pods_with(harness: LoopHarness, draft: str = NEW) -> set[str]:
    """Names of the pods that load this draft."""
    pods = harness.kube.all_of(POD)
    return {pod["metadata"]["name"] for pod in pods if f'"{draft}"' in str(pod["spec"])}


def trial_of(harness: LoopHarness) -> dict[str, Any]:
    found: dict[str, Any] = harness.status["draftTrial"]
    return found


class Counting(FakeMetrics):
    """Each pod serves eight requests at a time; each draft at a depth and a speed of its own."""

    def __init__(self, harness: LoopHarness, *, faster: float, draft: str = NEW) -> None:
        super().__init__(harness.clock)
        self._bench, self.faster, self._draft = harness, faster, draft
        self.waits = 0.0
        """Share of the requests with the new draft that wait for long."""
        self._cells: dict[str, tuple[float, CellCounts]] = {}
        self._random = random.Random(5)

    async def sample(self, pods: Sequence[PodEndpoint]) -> Sample:
        found = await super().sample(pods)
        new = pods_with(self._bench, self._draft)
        return Sample(tuple(self._counted(each, new=each.pod in new) for each in found.counters))

    def _counted(self, page: PodCounters, *, new: bool) -> PodCounters:
        since_s, before = self._cells.get(page.pod, (page.at_s, CellCounts()))
        seconds = page.at_s - since_s
        per_step, step_s = (4.0, 0.04 / (1 + self.faster)) if new else (1.0, 0.01)
        steps = seconds / step_s * self._random.gauss(1, 0.005)
        counts = before + CellCounts(steps, seconds, steps * per_step * BATCH, steps * BATCH)
        self._cells[page.pod] = page.at_s, counts
        return replace(
            page,
            engine=replace(page.engine, generation_tokens=counts.tokens, requests_running=BATCH),
            cells={Cell(BATCH, 7 if new else 0, StepKind.DECODE): counts},
            ttft=self._ttft(counts.tokens / 100, self.waits if new else 0.0),
        )

    def _ttft(self, requests: float, slow: float) -> Histogram:
        return ((0.06, requests * (1 - slow)), (0.1, requests), (inf, requests))


async def trying(*, faster: float = 0.1, **changes: Any) -> LoopHarness:
    """A fleet of three of which one is to have another draft since a moment ago."""
    harness = LoopHarness({"replicas": 3, **changes})
    await harness.until_ready()
    harness.metrics = Counting(harness, faster=faster)
    harness.edit(TRIAL)
    return harness


async def test_one_replica_has_it_and_the_others_are_not_restarted() -> None:
    harness = await trying()
    before = {pod["metadata"]["name"] for pod in harness.kube.all_of(POD)}
    await pass_minutes(harness, 5)
    found = trial_of(harness)
    assert found["state"] == "Comparing"
    assert pods_with(harness) == {found["pod"]}
    assert len(pods_with(harness, OLD) & before) == 2
    assert harness.condition("Degraded")["status"] == "False"
    assert harness.status["engine"]["actuation"] == "Live"
    (begun,) = events(harness, "Canary")
    assert f"One replica with draft {NEW}," in begun


@pytest.mark.parametrize(
    ("faster", "result"), [(0.1, "Faster"), (-0.1, "Slower"), (0.0, "NoDifference")]
)
async def test_the_verdict_has_its_interval_and_the_edit_that_follows(
    faster: float, result: str
) -> None:
    harness = await trying(faster=faster)
    await pass_minutes(harness, 60)
    found = trial_of(harness)
    assert (found["state"], found["result"]) == ("Compared", result)
    assert abs(float(found["percent"]) - 100 * faster) < 1
    assert "at equal batch, each side at its own depth" in found["message"]
    patch = '\'{"spec":{"draft":{"id":"someone/kimi-k2.6-trained","revision":"","trial":null}}}\''
    assert (patch in found["message"]) == (result == "Faster")
    assert ("To end it, remove spec.draft.trial." in found["message"]) == (result != "Faster")
    assert len(pods_with(harness)) == 1


async def test_adopted_by_the_edit_its_replica_is_the_canary_and_all_follow() -> None:
    harness = await trying()
    await pass_minutes(harness, 60)
    found = trial_of(harness)
    harness.edit({"draft": {"id": NEW, "trial": {"id": NEW}}})
    await harness.until_rolled()
    assert len(pods_with(harness)) == 3
    assert found["pod"] in pods_with(harness)
    assert harness.kube.names(DEPLOYMENT) == [f"kimi-{found['revision']}"]
    assert "draftTrial" not in harness.status


async def test_a_longer_wait_for_the_first_token_is_told_and_takes_nothing_back() -> None:
    harness = await trying()
    metrics = harness.metrics
    assert isinstance(metrics, Counting)
    metrics.waits = 0.2
    await pass_minutes(harness, 60)
    found = trial_of(harness)
    assert found["result"] == "Faster"
    assert "But 20.0% of its requests have a time to first token above 60 ms" in found["message"]
    harness.edit(ADOPTED)
    await harness.until_rolled()
    assert len(pods_with(harness)) == 3


async def test_adopted_though_slower_it_goes_back() -> None:
    harness = await trying(faster=-0.1)
    await pass_minutes(harness, 60)
    harness.edit(ADOPTED)
    await pass_minutes(harness, 5)
    assert not pods_with(harness)
    assert harness.status["rollout"]["reason"] == "CanarySlower"


async def test_a_veto_that_was_taken_back_unseen_is_not_called_complete() -> None:
    harness = await trying(faster=-0.1)
    await pass_minutes(harness, 60)
    harness.edit(ADOPTED)
    await pass_minutes(harness, 5)
    vetoed = harness.status["rollout"]
    assert vetoed["stage"] == "RolledBack"
    harness.edit({"draft": {"id": OLD}})
    # The reconcile that ends it could not report.
    kept = harness.kube.find(CONFIG_MAP, "kimi-tuning")
    data = {key: text for key, text in kept["data"].items() if key != "rollout.json"}
    harness.kube.put(CONFIG_MAP, {**kept, "data": data})
    harness.restart()
    await pass_minutes(harness, 1)
    ended = harness.status["rollout"]
    assert (ended["stage"], ended["revision"]) == ("Complete", vetoed["stable"])
    assert ended["reason"] == "Reverted"


async def test_removed_it_gives_its_place_back() -> None:
    harness = await trying()
    await pass_minutes(harness, 10)
    harness.edit({"draft.trial": None})
    await harness.until_rolled()
    assert len(pods_with(harness, OLD)) == 3
    assert "draftTrial" not in harness.status


async def test_another_draft_on_trial_is_compared_from_the_beginning() -> None:
    harness = await trying()
    await pass_minutes(harness, 60)
    one = trial_of(harness)
    harness.edit({"draft.trial": {"id": "someone/third"}})
    await pass_minutes(harness, 5)
    another = trial_of(harness)
    assert another["state"] == "Comparing"
    assert another["revision"] != one["revision"]
    assert not pods_with(harness)
    assert pods_with(harness, "someone/third") == {another["pod"]}


async def test_a_trial_survives_the_operator() -> None:
    harness = await trying()
    await pass_minutes(harness, 10)
    before, writes = trial_of(harness)["pod"], len(harness.kube.writes)
    harness.restart()
    await pass_minutes(harness, 50)
    assert (trial_of(harness)["pod"], trial_of(harness)["result"]) == (before, "Faster")
    assert not [each for each in harness.kube.writes[writes:] if each.kind == DEPLOYMENT.kind]


async def test_a_lost_record_begins_the_comparison_anew_with_the_same_pod() -> None:
    harness = await trying()
    await pass_minutes(harness, 10)
    before = trial_of(harness)["pod"]
    harness.kube.remove(CONFIG_MAP, "llm", "kimi-tuning")
    harness.restart()
    await pass_minutes(harness, 60)
    assert (trial_of(harness)["pod"], trial_of(harness)["result"]) == (before, "Faster")


async def test_a_single_replica_is_left_alone() -> None:
    harness = LoopHarness({"replicas": 1, **TRIAL})
    await harness.until_ready()
    await pass_minutes(harness, 5)
    assert trial_of(harness)["state"] == "Waiting"
    assert "set spec.replicas to 2 or more" in trial_of(harness)["message"]
    assert not pods_with(harness)


@pytest.mark.parametrize("surge", [0, 1])
async def test_only_a_spec_without_surge_lets_it_take_a_replicas_place(surge: int) -> None:
    cluster = PlayedCluster({"replicas": 2, "rollout.maxSurge": surge}, {}, nodes=2)
    await cluster.settle()
    cluster.edit(TRIAL)
    await cluster.run(1800)
    found = trial_of(cluster.harness)
    assert cluster.harness.condition("Degraded")["reason"] == "AsExpected"
    if surge:
        assert (cluster.least_ready, found["state"]) == (2, "Starting")
        assert (
            "It waits for capacity, since a draft on trial takes no replica's place."
            in (found["message"])
        )
    else:
        assert (cluster.least_ready, found["state"] != "Starting") == (1, True)


async def test_its_draft_is_fetched_before_its_pod_at_the_commit_of_the_others_target() -> None:
    harness = await fetched(replicas=3, **{"model.revision": "main"})
    harness.metrics = Counting(harness, faster=0.1)
    harness.edit(TRIAL)
    await pass_minutes(harness, 2)
    (job,) = harness.kube.all_of(JOB)
    (words,) = (each["command"] for each in job["spec"]["template"]["spec"]["containers"])
    assert words[words.index("--model-revision") + 1] == COMMIT
    assert words[words.index("--draft") + 1] == NEW
    assert not pods_with(harness)
    finish(harness, RESULT.replace(DRAFT_COMMIT, NEWER))
    await pass_minutes(harness, 5)
    (tried,) = [each for each in harness.kube.all_of(DEPLOYMENT) if NEW in str(each)]
    assert NEWER in str(tried)
    assert COMMIT in str(tried)
    assert env(tried)["HF_HUB_OFFLINE"] == "1"
    assert trial_of(harness)["state"] == "Comparing"


async def test_a_draft_that_cannot_be_fetched_is_no_trouble_of_what_serves() -> None:
    harness = await fetched(replicas=3)
    harness.edit(TRIAL)
    await pass_minutes(harness, 1)
    finish(harness, "someone/kimi-k2.6-trained cannot be fetched: no such repository.", "Failed")
    await pass_minutes(harness, 5)
    found = trial_of(harness)
    assert "But Job kimi-fetch-" in found["message"]
    assert "was given up" in found["message"]
    assert harness.condition("Degraded")["status"] == "False"
    assert len(pods_with(harness, OLD)) == 3


@pytest.mark.parametrize("late", [False, True])
async def test_a_draft_that_does_not_fit_is_not_tried_and_all_else_goes_on(*, late: bool) -> None:
    harness = LoopHarness({"replicas": 3})
    fits = ModelConfig(architectures=("LlamaForCausalLM",), hidden_size=64, vocab_size=512)
    wide = ModelConfig(
        architectures=("Eagle3LlamaForCausalLM",), hidden_size=128, vocab_size=512, fc_norm=True
    )
    harness.models[ModelRef("nvidia/Kimi-K2.6-NVFP4")] = ModelFacts(config=fits)
    known = ModelFacts(config=wide)
    harness.models[ModelRef(NEW)] = NOT_YET if late else known
    await harness.until_ready()
    harness.edit({**TRIAL, "replicas": 4})
    await pass_minutes(harness, 0.5)
    assert not pods_with(harness)
    await pass_minutes(harness, 2)
    assert bool(pods_with(harness)) == late
    harness.models[ModelRef(NEW)] = known
    await pass_minutes(harness, 2)
    assert not pods_with(harness)
    assert len(pods_with(harness, OLD)) == 4
    assert trial_of(harness)["state"] == "Waiting"
    assert "reads hidden states of size 128" in trial_of(harness)["message"]
    assert harness.condition("Degraded")["status"] == "False"
    (warned,) = harness.status["warnings"]
    assert warned.startswith("spec.draft.trial: ")
