"""Fleets whose depth is live, and whose spec a later release would not start live any more.

`earlier/` holds what the earlier release's operator wrote, as it wrote it: it took the tag of any
image for vLLM's version.
"""

import json
from pathlib import Path

import pytest

from fathom.api import names
from fathom.core.cluster.kinds import CONFIG_MAP, DEPLOYMENT, EVENT, POD
from fathom.core.revision import revisions_of
from fathom.engine.depth import DepthDocument, flat
from fathom.tuning.interface import TuningDecision, TuningSnapshot
from fathom.tuning.tuner import decide as tune
from manifest_samples import resource
from scenarios.test_quality_in_the_loop import checked, document
from scenarios.test_quality_in_the_loop import decide as started
from support.bench import START_S, Bench, holding, moved

FLEET = {"replicas": 3, "engine.image": "ghcr.io/llm-d/llm-d-cuda:v0.32.0"}
LIVE = "90541534"
"""The revision of its pods, as that release called them."""


def upgraded() -> Bench:
    bench = Bench(FLEET)
    bench.clock.at_s = START_S + 5 * 60
    written = Path(__file__).parent / "earlier" / "live_by_its_tag.json"
    kinds = {each.kind: each for each in (CONFIG_MAP, DEPLOYMENT)}
    for each in json.loads(written.read_text()):
        bench.kube.put(kinds[each["kind"]], each)
    bench.play_controllers()
    bench.metrics.generation = 1
    bench.restart()
    return bench


def deeper(bench: Bench) -> list[TuningSnapshot]:
    """A tuner that wants depth 7 wherever it may, and what it was told."""
    told: list[TuningSnapshot] = []

    def decide(snapshot: TuningSnapshot) -> TuningDecision:
        told.append(snapshot)
        held = holding(snapshot)
        if snapshot.live_refusal is not None:
            return held
        return moved(held, DepthDocument(2, flat(7, snapshot.settings.max_batch)))

    bench.decide = decide
    return told


def schedule(bench: Bench) -> list[list[int]]:
    found: list[list[int]] = document(bench)["schedule"]
    return found


async def test_their_depth_goes_on_following_the_traffic() -> None:
    assert not resource(FLEET).engine.live
    bench = upgraded()
    told = deeper(bench)
    pods = bench.kube.names(POD)
    await bench.run_for(600)
    assert told[-1].live_refusal is None
    assert told[-1].settings.named == {0, 1, 3, 7}
    assert {each.name for each in told[-1].pods} == set(pods)
    assert schedule(bench) == [[1, 1024, 7]]
    assert bench.kube.names(POD) == pods
    assert bench.kube.written("Deployment") == []


async def test_the_status_says_so_and_what_the_next_rollout_would_cost() -> None:
    bench = upgraded()
    await bench.run_for(600)
    engine = bench.status["engine"]
    assert engine["actuation"] == "Live"
    assert engine["reason"].startswith(f"it is live in the pods of revision {LIVE}, as they")
    assert "set spec.engine.version" in engine["reason"]


async def test_those_that_serve_stay_live_while_others_are_on_trial() -> None:
    bench = upgraded()
    told = deeper(bench)
    await bench.run_for(300)
    bench.edit({"engine.image": "ghcr.io/llm-d/llm-d-cuda:v0.33.0"})
    await bench.run_for(60)
    bench.play_controllers()
    await bench.run_for(60)
    assert len(bench.kube.names(DEPLOYMENT)) == 2
    assert told[-1].live_refusal is None
    assert {each.name.rsplit("-", 1)[0] for each in told[-1].pods} == {f"kimi-{LIVE}"}
    await bench.until_rolled()
    assert told[-1].live_refusal is not None
    assert bench.status["engine"]["actuation"] == "None"


def without_its_deployment(bench: Bench) -> None:
    """Somebody has deleted it, and its pods went with it."""
    bench.kube.remove(DEPLOYMENT, "llm", f"kimi-{LIVE}")
    for pod in bench.kube.names(POD):
        bench.kube.remove(POD, "llm", pod)
    bench.loop.wake()


@pytest.mark.parametrize("restarted", [True, False])
async def test_one_that_is_deleted_comes_back_live(*, restarted: bool) -> None:
    bench = upgraded()
    told = deeper(bench)
    await bench.run_for(300)
    (before,) = bench.kube.all_of(DEPLOYMENT)
    generation = document(bench)["generation"]
    without_its_deployment(bench)
    if restarted:
        bench.restart()
    bench.metrics.generation = generation
    await bench.until_ready()
    await bench.run_for(300)
    (after,) = bench.kube.all_of(DEPLOYMENT)
    pods = [each["spec"]["template"]["spec"] for each in (before, after)]
    assert pods[0]["containers"][0]["args"] == pods[1]["containers"][0]["args"]
    assert pods[0]["volumes"] == pods[1]["volumes"]
    assert told[-1].live_refusal is None
    assert bench.status["engine"]["actuation"] == "Live"
    assert "In those that replace them it is not" in bench.status["engine"]["reason"]
    # Its depth went on being what it was, meanwhile too.
    assert document(bench) == {"generation": generation, "schedule": [[1, 1024, 7]], "pods": {}}
    # And it is what this release goes on rendering, which now has rendered it.
    bench.kube.writes.clear()
    bench.restart()
    await bench.run_for(600)
    assert bench.kube.written("Deployment") == []


def never_ready() -> Bench:
    """Its spec was taken, and no pod of it had become ready when the release changed."""
    bench = upgraded()
    kept = bench.kube.find(CONFIG_MAP, "kimi-tuning")
    data = dict(kept["data"])
    data["acceptedRevision"] = data.pop("revision")
    data["acceptedSpec.json"] = data.pop("lastGoodSpec.json")
    bench.kube.put(CONFIG_MAP, {**kept, "data": data})
    without_its_deployment(bench)
    return bench


async def test_one_that_never_became_ready_is_what_this_release_would_start() -> None:
    bench = never_ready()
    await bench.run_for(60)
    (deployment,) = bench.kube.all_of(DEPLOYMENT)
    assert deployment["metadata"]["name"] == f"kimi-{LIVE}"
    assert "kimi-depth" not in json.dumps(deployment["spec"]["template"]["spec"]["volumes"])


@pytest.mark.parametrize("restarted", [True, False])
async def test_its_pods_are_not_taken_for_live_ones_by_their_name(*, restarted: bool) -> None:
    """Else their Deployment would be changed in place: all pods at once, and no canary."""
    bench = never_ready()
    bench.decide = tune
    await bench.until_ready()
    (before,) = bench.kube.all_of(DEPLOYMENT)
    if restarted:
        bench.restart()
    bench.edit({"speculation.tokens": 1})
    await bench.run_for(60)
    assert (
        bench.kube.find(DEPLOYMENT, f"kimi-{LIVE}")["spec"]["template"]
        == before["spec"]["template"]
    )
    (told,) = (each for each in bench.kube.all_of(EVENT) if each["reason"] == "Rolling")
    assert told["message"].startswith("spec.speculation.tokens changed, which needs new pods")


async def test_pods_that_came_back_live_are_not_rolled_for_a_name_from_before() -> None:
    """A release that knew less of their engine named them; their Deployment was made again."""
    bench = Bench({"replicas": 3})
    bench.decide = tune
    await bench.until_ready()
    kept = bench.kube.find(CONFIG_MAP, "kimi-tuning")
    static = revisions_of(resource())[-1]
    bench.kube.put(CONFIG_MAP, {**kept, "data": {**kept["data"], "revision": static}})
    for kind in (DEPLOYMENT, POD):
        for each in bench.kube.names(kind):
            bench.kube.remove(kind, "llm", each)
    bench.restart()
    await bench.until_ready()
    assert bench.kube.names(DEPLOYMENT) == [f"kimi-{static}"]
    bench.kube.writes.clear()
    bench.edit({"speculation.tokens": 1})
    await bench.run_for(300)
    assert schedule(bench) == [[1, 1024, 1]]
    assert bench.kube.written("Deployment") == []


async def test_the_user_s_own_depth_is_edited_live() -> None:
    bench = upgraded()
    bench.decide = tune
    await bench.run_for(120)
    assert schedule(bench) == [[1, 1024, 3]]
    bench.edit({"speculation.tokens": 1})
    await bench.run_for(300)
    assert schedule(bench) == [[1, 1024, 1]]
    assert bench.kube.written("Deployment") == []


async def test_what_they_were_sized_for_cannot_be() -> None:
    """An engine that was started for 7 refuses more, so the edit would never have an effect."""
    bench = upgraded()
    bench.decide = tune
    await bench.run_for(120)
    bench.edit({"speculation.maxTokens": 15})
    await bench.run_for(120)
    (told,) = (each for each in bench.kube.all_of(EVENT) if each["reason"] == "Rolling")
    assert told["message"].startswith("spec.speculation.maxTokens changed, which needs new pods")


async def test_mode_static_asks_for_rest_at_the_user_s_own_depth() -> None:
    bench = upgraded()
    deeper(bench)
    await bench.run_for(300)
    assert schedule(bench) == [[1, 1024, 7]]
    bench.decide = tune
    bench.edit({"speculation.tuning.mode": "Static"})
    await bench.run_for(300)
    assert schedule(bench) == [[1, 1024, 3]]
    assert bench.status["depth"]["schedule"] == [[1, 1024, 3]]


async def test_a_document_that_pods_mount_is_made_again_whatever_the_mode() -> None:
    bench = upgraded()
    bench.decide = tune
    bench.edit({"speculation.tuning.mode": "Static"})
    await bench.run_for(300)
    before = document(bench)["generation"]
    bench.kube.remove(CONFIG_MAP, "llm", "kimi-depth")
    bench.loop.wake()
    await bench.run_for(300)
    assert document(bench)["generation"] > before
    written = len(bench.kube.writes)
    await bench.run_for(3600)
    assert len(bench.kube.writes) == written


async def test_mode_static_lets_go_of_the_pods_of_a_check() -> None:
    bench = upgraded()
    bench.decide = tune
    await bench.run_for(60)
    bench.resource["metadata"]["annotations"] = {names.ANNOTATION_CHECK_QUALITY: "monday"}
    for _ in range(2):
        bench.metrics.generation = document(bench)["generation"]
        await bench.tick()
    assert document(bench)["pods"] != {}
    bench.edit({"speculation.tuning.mode": "Static"})
    for _ in range(10):
        bench.metrics.generation = document(bench)["generation"]
        await bench.tick()
        bench.clock.at_s += 30
    assert document(bench)["pods"] == {}


async def test_what_is_said_of_pods_to_come_is_said_of_the_newest_spec() -> None:
    bench = upgraded()
    await bench.run_for(300)
    bench.edit({"engine.version": "0.30.0"})
    await bench.run_for(60)
    engine = bench.status["engine"]
    assert engine["version"] == "0.30.0"
    assert "and this is 0.30.0" in engine["reason"]


async def test_a_quality_check_is_not_refused() -> None:
    bench = upgraded()
    bench.decide = started
    await bench.run_for(60)
    await checked(bench, "monday")
    assert bench.status["quality"]["result"] == "Lossless"
