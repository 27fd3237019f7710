"""Fleets whose depth is live, and whose spec a later release would not start live any more.

`earlier/` holds what the earlier release's operator wrote, as it wrote it: it took the tag of any
image for vLLM's version.
"""

import json
from pathlib import Path

import pytest

from fathom.api import names
from fathom.cluster.kinds import CONFIG_MAP, DEPLOYMENT, EVENT, POD
from fathom.engine.depth import DepthDocument, flat
from fathom.rollout.revision import revisions_of
from fathom.tuning.interface import TuningDecision, TuningSnapshot
from fathom.tuning.tuner import decide as tune
from manifest_samples import resource
from scenarios.test_quality_in_the_loop import checked, document
from scenarios.test_quality_in_the_loop import decide as started
from support.loop_harness import START_S, LoopHarness, holding, moved

FLEET = {"replicas": 3, "engine.image": "ghcr.io/llm-d/llm-d-cuda:v0.32.0"}
LIVE = "90541534"
"""The revision of its pods, as that release called them."""


def upgraded() -> LoopHarness:
    harness = LoopHarness(FLEET)
    harness.clock.at_s = START_S + 5 * 60
    written = Path(__file__).parent / "earlier" / "live_by_its_tag.json"
    kinds = {each.kind: each for each in (CONFIG_MAP, DEPLOYMENT)}
    for each in json.loads(written.read_text()):
        harness.kube.put(kinds[each["kind"]], each)
    harness.play_controllers()
    harness.metrics.generation = 1
    harness.restart()
    return harness


def deeper(harness: LoopHarness) -> list[TuningSnapshot]:
    """A tuner that wants depth 7 wherever it may, and what it was told."""
    told: list[TuningSnapshot] = []

    def decide(snapshot: TuningSnapshot) -> TuningDecision:
        told.append(snapshot)
        held = holding(snapshot)
        if snapshot.live_refusal is not None:
            return held
        return moved(
            held, DepthDocument(generation=2, schedule=flat(7, snapshot.settings.max_batch))
        )

    harness.decide = decide
    return told


def schedule(harness: LoopHarness) -> list[list[int]]:
    found: list[list[int]] = document(harness)["schedule"]
    return found


async def test_their_depth_goes_on_following_the_traffic() -> None:
    assert not resource(FLEET).engine.live
    harness = upgraded()
    told = deeper(harness)
    pods = harness.kube.names(POD)
    await harness.run_for(600)
    assert told[-1].live_refusal is None
    assert told[-1].settings.named == {0, 1, 3, 7}
    assert {each.name for each in told[-1].pods} == set(pods)
    assert schedule(harness) == [[1, 1024, 7]]
    assert harness.kube.names(POD) == pods
    assert harness.kube.written("Deployment") == []


async def test_the_status_says_so_and_what_the_next_rollout_would_cost() -> None:
    harness = upgraded()
    await harness.run_for(600)
    engine = harness.status["engine"]
    assert engine["actuation"] == "Live"
    assert engine["reason"].startswith(f"it is live in the pods of revision {LIVE}, as they")
    assert "set spec.engine.version" in engine["reason"]


async def test_those_that_serve_stay_live_while_others_are_on_trial() -> None:
    harness = upgraded()
    told = deeper(harness)
    await harness.run_for(300)
    harness.edit({"engine.image": "ghcr.io/llm-d/llm-d-cuda:v0.33.0"})
    await harness.run_for(60)
    harness.play_controllers()
    await harness.run_for(60)
    assert len(harness.kube.names(DEPLOYMENT)) == 2
    assert told[-1].live_refusal is None
    assert {each.name.rsplit("-", 1)[0] for each in told[-1].pods} == {f"kimi-{LIVE}"}
    await harness.until_rolled()
    assert told[-1].live_refusal is not None
    assert harness.status["engine"]["actuation"] == "None"


def without_its_deployment(harness: LoopHarness) -> None:
    """Somebody has deleted it, and its pods went with it."""
    harness.kube.remove(DEPLOYMENT, "llm", f"kimi-{LIVE}")
    for pod in harness.kube.names(POD):
        harness.kube.remove(POD, "llm", pod)
    harness.loop.wake()


@pytest.mark.parametrize("restarted", [True, False])
async def test_one_that_is_deleted_comes_back_live(*, restarted: bool) -> None:
    harness = upgraded()
    told = deeper(harness)
    await harness.run_for(300)
    (before,) = harness.kube.all_of(DEPLOYMENT)
    generation = document(harness)["generation"]
    without_its_deployment(harness)
    if restarted:
        harness.restart()
    harness.metrics.generation = generation
    await harness.until_ready()
    await harness.run_for(300)
    (after,) = harness.kube.all_of(DEPLOYMENT)
    pods = [each["spec"]["template"]["spec"] for each in (before, after)]
    assert pods[0]["containers"][0]["args"] == pods[1]["containers"][0]["args"]
    assert pods[0]["volumes"] == pods[1]["volumes"]
    assert told[-1].live_refusal is None
    assert harness.status["engine"]["actuation"] == "Live"
    assert "In those that replace them it is not" in harness.status["engine"]["reason"]
    # Its depth went on being what it was, meanwhile too.
    assert document(harness) == {"generation": generation, "schedule": [[1, 1024, 7]], "pods": {}}
    # And it is what this release goes on rendering, which now has rendered it.
    harness.kube.writes.clear()
    harness.restart()
    await harness.run_for(600)
    assert harness.kube.written("Deployment") == []


def never_ready() -> LoopHarness:
    """Its spec was taken, and no pod of it had become ready when the release changed."""
    harness = upgraded()
    kept = harness.kube.find(CONFIG_MAP, "kimi-tuning")
    data = dict(kept["data"])
    data["acceptedRevision"] = data.pop("revision")
    data["acceptedSpec.json"] = data.pop("lastGoodSpec.json")
    harness.kube.put(CONFIG_MAP, {**kept, "data": data})
    without_its_deployment(harness)
    return harness


async def test_one_that_never_became_ready_is_what_this_release_would_start() -> None:
    harness = never_ready()
    await harness.run_for(60)
    (deployment,) = harness.kube.all_of(DEPLOYMENT)
    assert deployment["metadata"]["name"] == f"kimi-{LIVE}"
    assert "kimi-depth" not in json.dumps(deployment["spec"]["template"]["spec"]["volumes"])


@pytest.mark.parametrize("restarted", [True, False])
async def test_its_pods_are_not_taken_for_live_ones_by_their_name(*, restarted: bool) -> None:
    """Else their Deployment would be changed in place: all pods at once, and no canary."""
    harness = never_ready()
    harness.decide = tune
    await harness.until_ready()
    (before,) = harness.kube.all_of(DEPLOYMENT)
    if restarted:
        harness.restart()
    harness.edit({"speculation.tokens": 1})
    await harness.run_for(60)
    assert (
        harness.kube.find(DEPLOYMENT, f"kimi-{LIVE}")["spec"]["template"]
        == before["spec"]["template"]
    )
    (told,) = (each for each in harness.kube.all_of(EVENT) if each["reason"] == "Rolling")
    assert told["message"].startswith("spec.speculation.tokens changed, which needs new pods")


async def test_pods_that_came_back_live_are_not_rolled_for_a_name_from_before() -> None:
    """A release that knew less of their engine named them; their Deployment was made again."""
    harness = LoopHarness({"replicas": 3})
    harness.decide = tune
    await harness.until_ready()
    kept = harness.kube.find(CONFIG_MAP, "kimi-tuning")
    static = revisions_of(resource())[-1]
    harness.kube.put(CONFIG_MAP, {**kept, "data": {**kept["data"], "revision": static}})
    for kind in (DEPLOYMENT, POD):
        for each in harness.kube.names(kind):
            harness.kube.remove(kind, "llm", each)
    harness.restart()
    await harness.until_ready()
    assert harness.kube.names(DEPLOYMENT) == [f"kimi-{static}"]
    harness.kube.writes.clear()
    harness.edit({"speculation.tokens": 1})
    await harness.run_for(300)
    assert schedule(harness) == [[1, 1024, 1]]
    assert harness.kube.written("Deployment") == []


async def test_the_user_s_own_depth_is_edited_live() -> None:
    harness = upgraded()
    harness.decide = tune
    await harness.run_for(120)
    assert schedule(harness) == [[1, 1024, 3]]
    harness.edit({"speculation.tokens": 1})
    await harness.run_for(300)
    assert schedule(harness) == [[1, 1024, 1]]
    assert harness.kube.written("Deployment") == []


async def test_what_they_were_sized_for_cannot_be() -> None:
    """An engine that was started for 7 refuses more, so the edit would never have an effect."""
    harness = upgraded()
    harness.decide = tune
    await harness.run_for(120)
    harness.edit({"speculation.maxTokens": 15})
    await harness.run_for(120)
    (told,) = (each for each in harness.kube.all_of(EVENT) if each["reason"] == "Rolling")
    assert told["message"].startswith("spec.speculation.maxTokens changed, which needs new pods")


async def test_mode_static_asks_for_rest_at_the_user_s_own_depth() -> None:
    harness = upgraded()
    deeper(harness)
    await harness.run_for(300)
    assert schedule(harness) == [[1, 1024, 7]]
    harness.decide = tune
    harness.edit({"speculation.tuning.mode": "Static"})
    await harness.run_for(300)
    assert schedule(harness) == [[1, 1024, 3]]
    assert harness.status["depth"]["schedule"] == [[1, 1024, 3]]


async def test_a_document_that_pods_mount_is_made_again_whatever_the_mode() -> None:
    harness = upgraded()
    harness.decide = tune
    harness.edit({"speculation.tuning.mode": "Static"})
    await harness.run_for(300)
    before = document(harness)["generation"]
    harness.kube.remove(CONFIG_MAP, "llm", "kimi-depth")
    harness.loop.wake()
    await harness.run_for(300)
    assert document(harness)["generation"] > before
    written = len(harness.kube.news)
    await harness.run_for(3600)
    assert len(harness.kube.news) == written


async def test_mode_static_lets_go_of_the_pods_of_a_check() -> None:
    harness = upgraded()
    harness.decide = tune
    await harness.run_for(60)
    harness.resource["metadata"]["annotations"] = {names.ANNOTATION_CHECK_QUALITY: "monday"}
    for _ in range(2):
        harness.metrics.generation = document(harness)["generation"]
        await harness.tick()
    assert document(harness)["pods"] != {}
    harness.edit({"speculation.tuning.mode": "Static"})
    for _ in range(10):
        harness.metrics.generation = document(harness)["generation"]
        await harness.tick()
        harness.clock.at_s += 30
    assert document(harness)["pods"] == {}


async def test_what_is_said_of_pods_to_come_is_said_of_the_newest_spec() -> None:
    harness = upgraded()
    await harness.run_for(300)
    harness.edit({"engine.version": "0.30.0"})
    await harness.run_for(60)
    engine = harness.status["engine"]
    assert "version" not in engine  # of the pods that serve: their spec did not give it
    assert "and this is 0.30.0" in engine["reason"]


async def test_a_quality_check_is_not_refused() -> None:
    harness = upgraded()
    harness.decide = started
    await harness.run_for(60)
    await checked(harness, "monday")
    assert harness.status["quality"]["result"] == "Lossless"
