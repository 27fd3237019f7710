"""A draft on trial in trouble, or beside trouble: what serves does not notice, and all is told."""

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from fathom.adapters.ports import PodEndpoint, Sample
from fathom.api import names
from fathom.api.status import SpeculativeDeploymentStatus
from fathom.cli.cluster import read_deployment
from fathom.cli.resources import judged
from fathom.cli.status import wellness_of
from fathom.cluster.kinds import CONFIG_MAP, POD
from fathom.engine.depth import depth_at
from fathom.health import Headline, Wellness
from fathom.model_facts import ModelFacts
from fathom.model_refs import ModelRef, model_refs
from fathom.page.draft_life import lives_in
from fathom.rollout.input import SCHEDULING_S
from fathom.runtime.caches import NOT_YET
from fathom.tuning.interface import TuningDecision, TuningSnapshot
from fathom.tuning.tuner import decide
from manifest_samples import resource
from scenarios.test_arm import pass_minutes
from scenarios.test_draft_trial import ADOPTED, NEW, OLD, TRIAL, pods_with, trial_of, trying
from scenarios.test_draft_trial_simulated import BATCH, Drafting, document, serving
from scenarios.test_weights import fetched, finish
from support.loop_harness import KEY, LoopHarness
from support.played_cluster import Engine, PlayedCluster

SURGES = {"replicas": 2, "rollout.maxSurge": 1}
REPLACED = "is being replaced by one"


async def test_pods_with_the_old_draft_keep_its_depth_until_they_go() -> None:
    harness, _ = await serving({OLD: 0.02, NEW: 0.85})
    harness.edit(TRIAL)
    await pass_minutes(harness, 22)
    harness.edit(ADOPTED)
    for _ in range(60):  # no pod is started: engines take their time
        harness.clock.at_s += min(await harness.tick() or 0, 10)
    assert harness.status["rollout"]["stage"] == "Promoted"
    now = document(harness)
    assert {depth_at(now.for_pod(pod), BATCH) for pod in pods_with(harness, OLD)} == {0}
    assert {depth_at(now.for_pod(pod), BATCH) for pod in pods_with(harness, NEW)} == {7}
    await pass_minutes(harness, 5)
    assert not pods_with(harness, OLD)
    assert depth_at(document(harness).schedule, BATCH) == 7


@pytest.mark.parametrize("replicas", [2, 3])
async def test_a_replica_that_finds_no_node_goes_before_the_trial(replicas: int) -> None:
    cluster = PlayedCluster(SURGES, {}, nodes=3)
    await cluster.settle()
    cluster.edit(TRIAL)
    await cluster.run(1800)
    assert pods_with(cluster.harness)
    cluster.edit({"replicas": 3})
    if replicas == 2:
        cluster.edit({"replicas": 2})
    await cluster.run(3600)
    assert cluster.harness.condition("Degraded")["reason"] == "AsExpected"
    assert len(pods_with(cluster.harness, OLD)) == replicas
    assert cluster.harness.condition("Progressing")["status"] == "False"
    # With three, no node is left for it.
    assert trial_of(cluster.harness)["state"] in (
        {"Comparing", "Compared"} if replicas == 2 else {"Starting", "Waiting"}
    )


async def test_a_moment_without_the_others_leaves_what_is_known_of_them() -> None:
    harness, _ = await serving({OLD: 0.45, NEW: 0.85}, replicas=2)
    seen: list[TuningSnapshot] = []

    def watched(snapshot: TuningSnapshot) -> TuningDecision:
        seen.append(snapshot)
        return decide(snapshot)

    harness.decide = watched
    harness.edit(TRIAL)
    await pass_minutes(harness, 10)
    before = seen[-1].state.reference
    for pod in pods_with(harness, OLD):
        harness.kube.remove(POD, "llm", pod)
    harness.clock.at_s += 5
    await harness.tick()
    assert [pod.tries_draft for pod in seen[-1].pods] == [True]
    await pass_minutes(harness, 3)
    after = seen[-1].state.reference
    assert before is not None
    assert after is not None
    assert after.began_at_s == before.began_at_s


async def test_its_pod_that_comes_again_goes_on_at_its_depth() -> None:
    harness, _ = await serving({OLD: 0.02, NEW: 0.85})
    harness.edit(TRIAL)
    await pass_minutes(harness, 15)
    pod = trial_of(harness)["pod"]
    own = document(harness).for_pod(pod)
    assert own != document(harness).schedule
    harness.kube.remove(POD, "llm", pod)
    harness.clock.at_s += 5
    await harness.tick()
    harness.play_controllers()
    harness.clock.at_s += 5
    await harness.tick()
    (new,) = pods_with(harness)
    assert new != pod
    assert document(harness).for_pod(new) == own


async def test_a_fetch_that_was_given_up_is_nothing_that_goes_on() -> None:
    harness = await fetched(replicas=3)
    served = harness.status["weights"]["models"]
    harness.edit(TRIAL)
    await pass_minutes(harness, 1)
    finish(harness, "no such repository.", "Failed")
    await pass_minutes(harness, 10)
    assert harness.condition("Progressing")["status"] == "False"
    assert harness.status["weights"]["models"] == served


async def test_a_pin_on_its_pod_is_told() -> None:
    harness, _ = await serving({OLD: 0.45, NEW: 0.85})
    harness.edit(TRIAL)
    await pass_minutes(harness, 3)
    pod = copy.deepcopy(harness.kube.find(POD, trial_of(harness)["pod"]))
    pod["metadata"].setdefault("annotations", {})[names.ANNOTATION_PIN_DEPTH] = "3"
    harness.kube.put(POD, pod)
    await pass_minutes(harness, 65)
    assert "a pod that is held at a depth is no measure" in trial_of(harness)["message"]


async def test_the_page_names_what_is_compared() -> None:
    harness = await trying()
    await pass_minutes(harness, 5)
    (life,) = lives_in(SpeculativeDeploymentStatus.model_validate(harness.status))
    assert life.title == f"Another draft is on trial in {trial_of(harness)['pod']}"
    assert life.code == "DraftTrial/Comparing"


@pytest.mark.parametrize("by", ["rollout.paused", "annotation"])
async def test_a_pause_is_told(by: str) -> None:
    harness = LoopHarness({"replicas": 3})
    await harness.until_ready()
    harness.edit({**TRIAL, "rollout.paused": by == "rollout.paused"})
    if by == "annotation":
        harness.resource["metadata"]["annotations"] = {names.ANNOTATION_PAUSED: "a freeze"}
    await pass_minutes(harness, 5)
    assert trial_of(harness)["message"].startswith("it is held, by rollout.paused or by annotation")
    assert not pods_with(harness)


async def test_a_hub_that_is_silent_of_it_holds_no_other_pod() -> None:
    harness = LoopHarness({"replicas": 3, **TRIAL})
    harness.models[ModelRef(NEW)] = NOT_YET
    await pass_minutes(harness, 0.5)
    assert len(pods_with(harness, OLD)) == 3
    await pass_minutes(harness, 3)
    kept = harness.kube.find(CONFIG_MAP, "kimi-tuning")
    harness.kube.put(CONFIG_MAP, {**kept, "data": {**kept["data"], "models.json": "junk"}})
    harness.restart()
    harness.edit({"replicas": 4})
    await pass_minutes(harness, 5)
    assert harness.condition("Degraded")["reason"] == "AsExpected"
    assert len(pods_with(harness, OLD)) >= 3


@pytest.mark.parametrize(("mode", "own"), [("Static", False), ("Advise", False), ("Auto", True)])
async def test_its_verdict_says_at_which_depths(mode: str, *, own: bool) -> None:
    harness = await trying(**{"speculation.tuning": {"mode": mode}})
    await pass_minutes(harness, 60)
    assert trial_of(harness)["state"] == "Compared"
    assert ("each side at its own depth" in trial_of(harness)["message"]) == own


async def test_an_engine_of_it_that_does_not_obey_is_no_trouble_of_what_serves() -> None:
    class Deaf(Drafting):
        async def sample(self, pods: Sequence[PodEndpoint]) -> Sample:
            found, new = await super().sample(pods), pods_with(harness)
            return replace(
                found,
                counters=tuple(
                    replace(each, depth_generation=1) if each.pod in new else each
                    for each in found.counters
                ),
            )

    acceptance = {OLD: 0.45, NEW: 0.85}
    harness, _ = await serving(acceptance)
    harness.metrics = Deaf(harness, acceptance)
    harness.edit(TRIAL)
    for _ in range(12):
        await pass_minutes(harness, 0.5)
        assert harness.condition("Degraded")["status"] == "False"
    assert trial_of(harness)["reason"] == "DepthNotObeyed"


@pytest.mark.parametrize("silenced", [True, False])
def test_what_is_unknown_of_it_can_be_silenced(*, silenced: bool) -> None:
    why: dict[str, Any] = {"silence.fathom.dev/draft-fits": "CI has no hub"} if silenced else {}
    sd = resource(TRIAL)
    sd = replace(sd, metadata=sd.metadata.model_copy(update={"annotations": why}))
    found = judged(sd, {ref: ModelFacts() for ref in model_refs(sd.spec)})
    of_trial = [each for each in found.unknown if each.field == "spec.draft.trial"]
    assert [bool(each.silenced) for each in of_trial] == [silenced]


async def wellness(harness: LoopHarness) -> Wellness:
    reported = await read_deployment(harness.kube, KEY)
    assert reported is not None
    return wellness_of(reported, harness.clock.now_s())


async def in_place_of_one(trial: Engine) -> PlayedCluster:
    """A fleet of two in which a draft on trial takes one's place, and has such an engine."""
    engines: dict[str, Engine] = {}
    changes = {"replicas": 2, "rollout.maxSurge": 0, "engine.startupMinutes": 10}
    cluster = PlayedCluster(changes, engines, nodes=2)
    await cluster.settle()
    engines[cluster.harness.resource["spec"]["engine"]["image"]] = trial
    cluster.edit(TRIAL)
    return cluster


async def test_a_replica_whose_place_it_takes_is_not_missed_while_it_starts() -> None:
    cluster = await in_place_of_one(Engine())
    await cluster.run(30)
    found = await wellness(cluster.harness)
    assert cluster.harness.status["ready"] == "1/2"
    assert found.headline is Headline.UNDER_WAY
    assert found.cause.startswith("One replica of revision ")
    assert f"{REPLACED} of revision " in found.cause
    assert f" with draft {NEW}, to be compared: the canary" in found.cause
    await cluster.run(400)
    assert (await wellness(cluster.harness)).headline is Headline.WELL


async def test_one_that_never_starts_is_awaited_no_longer_than_a_start_may_take() -> None:
    cluster = await in_place_of_one(Engine(start_s=1e9))
    spec = cluster.harness.resource["spec"]["engine"]
    start_s = 60 * spec["startupMinutes"] + SCHEDULING_S
    await cluster.run(start_s)
    assert REPLACED in (await wellness(cluster.harness)).cause
    await cluster.run(180)
    assert REPLACED not in (await wellness(cluster.harness)).cause
    assert trial_of(cluster.harness)["state"] == "Failed"


async def test_one_that_crashes_is_not_well() -> None:
    cluster = await in_place_of_one(Engine(crashes=True))
    await cluster.run(120)
    found = await wellness(cluster.harness)
    assert found.headline is Headline.NOT_WELL
    assert "PodFailing: container vllm of pod" in found.cause


@pytest.mark.parametrize(
    ("surge", "comes_again", "unready", "headline"),
    [
        (0, True, {NEW}, Headline.UNDER_WAY),
        (0, True, {NEW, OLD}, Headline.NOT_WELL),
        (0, False, {NEW}, Headline.NOT_WELL),
        (0, False, {OLD}, Headline.NOT_WELL),
        (1, True, {NEW}, Headline.WELL),
        (1, True, {NEW, OLD}, Headline.NOT_WELL),
    ],
)
async def test_only_its_own_start_explains_a_missing_replica(
    surge: int, *, comes_again: bool, unready: set[str], headline: Headline
) -> None:
    harness = await trying(**{"rollout.maxSurge": surge})
    await pass_minutes(harness, 5)
    if comes_again:
        harness.kube.remove(POD, "llm", trial_of(harness)["pod"])
        harness.play_controllers()
    for draft in unready:
        harness.set_ready(min(pods_with(harness, draft)), ready=False)
    harness.clock.at_s += 5
    await harness.tick()
    found = await wellness(harness)
    assert found.headline is headline
    assert (REPLACED in found.cause) is (headline is Headline.UNDER_WAY)
