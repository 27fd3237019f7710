"""What the operator keeps is deleted by hand: it is written anew, and no pod is restarted for it.

The fleets are of releases that judged their engines otherwise, so that this one would give their
pods another revision.
"""

import pytest

from fathom.api.names import ANNOTATION_RETRY_ROLLOUT
from fathom.cli.rollout import retried
from fathom.cluster.kinds import CONFIG_MAP, DEPLOYMENT, POD
from fathom.tuning.tuner import decide as tune
from scenarios import test_earlier_adaptive_fleets as adaptive
from scenarios.test_arm import compared, pass_minutes
from scenarios.test_judged_otherwise import FLEET, LIVE, deeper, schedule, upgraded
from scenarios.test_quality_in_the_loop import document
from support.loop_harness import KEY, LoopHarness

TUNING, DEPTH = "kimi-tuning", "kimi-depth"
NEWER = "vllm/vllm-openai:v0.32.1"
PLAIN = {"replicas": 3, "engine.image": "vllm/vllm-openai:v0.32.0", "engine.startupMinutes": 1}


def lose(harness: LoopHarness, *config_maps: str, restarted: bool = True) -> None:
    """Deleted while the operator is away, or under its eyes."""
    for each in config_maps:
        harness.kube.remove(CONFIG_MAP, "llm", each)
    harness.kube.writes.clear()
    if restarted:
        harness.restart()
    harness.loop.wake()


async def on_trial(harness: LoopHarness, stable: str = f"kimi-{LIVE}") -> None:
    """A canary is there, and does not become ready."""
    await harness.run_for(120)
    harness.play_controllers()
    await harness.run_for(60)
    (canary,) = set(harness.kube.names(DEPLOYMENT)) - {stable}
    harness.play_controllers(ready=False)
    for pod in harness.kube.names(POD):
        harness.set_ready(pod, ready=not pod.startswith(canary))


async def tuned() -> LoopHarness:
    """A fleet whose depth the tuner has moved from 3 to 7."""
    harness = upgraded()
    deeper(harness)
    await harness.run_for(300)
    assert schedule(harness) == [[1, 1024, 7]]
    harness.metrics.generation = document(harness)["generation"]
    harness.decide = tune
    await harness.run_for(60)
    return harness


@pytest.mark.parametrize("restarted", [True, False])
async def test_a_fleet_that_is_live_by_an_earlier_judgement_is_not_rolled(
    *, restarted: bool
) -> None:
    harness = await tuned()
    pods = harness.kube.names(POD)
    lose(harness, TUNING, restarted=restarted)
    await harness.run_for(600)
    assert harness.kube.written("Deployment") == []
    assert harness.kube.names(POD) == pods
    assert harness.kube.find(CONFIG_MAP, TUNING)["data"]["revision"] == LIVE
    assert schedule(harness) == [[1, 1024, 7]]
    assert harness.status["engine"]["actuation"] == "Live"


async def test_nor_is_it_where_what_was_kept_is_junk() -> None:
    harness = await tuned()
    kept = harness.kube.find(CONFIG_MAP, TUNING)
    harness.kube.put(CONFIG_MAP, {**kept, "data": {**kept["data"], "lastGoodSpec.json": "junk"}})
    lose(harness)
    await harness.run_for(600)
    assert harness.kube.written("Deployment") == []
    assert harness.kube.find(CONFIG_MAP, TUNING)["data"]["revision"] == LIVE


@pytest.mark.parametrize("wish", ["Enabled", "Canary"])
async def test_fleets_with_adaptive_verification_stay_as_they_are(wish: str) -> None:
    harness = adaptive.upgraded(wish)
    await pass_minutes(harness, 2)
    pods = harness.kube.names(POD)
    lose(harness, TUNING)
    await pass_minutes(harness, 10)
    assert harness.kube.written("Deployment") == []
    assert harness.kube.names(POD) == pods
    if wish == "Canary":
        assert compared(harness)["revision"] == adaptive.OF_EARLIER


async def edited_unknown() -> tuple[LoopHarness, str]:
    """Three replicas whose spec was edited while the record of what they are was lost."""
    harness = LoopHarness(PLAIN)
    await harness.until_ready()
    (stable,) = harness.kube.names(DEPLOYMENT)
    harness.edit({"engine.image": NEWER})
    lose(harness, TUNING)
    return harness, stable


async def test_an_edit_waits_where_nobody_knows_what_could_be_gone_back_to() -> None:
    harness, stable = await edited_unknown()
    await harness.run_for(900)
    assert harness.kube.names(DEPLOYMENT) == [stable]
    degraded = harness.condition("Degraded")
    assert (degraded["status"], degraded["reason"]) == ("True", "StableSpecUnknown")
    assert "no canary is started" in degraded["message"]
    assert harness.status["ready"] == "3/3"
    writes = len(harness.kube.news)
    await harness.run_for(900)
    assert len(harness.kube.news) == writes


async def test_it_rolls_once_that_spec_was_put_back_for_a_while() -> None:
    harness, stable = await edited_unknown()
    await harness.run_for(60)
    harness.edit({"engine.image": PLAIN["engine.image"]})
    await harness.run_for(120)
    assert harness.condition("Degraded")["status"] == "False"
    assert harness.kube.names(DEPLOYMENT) == [stable]
    harness.edit({"engine.image": NEWER})
    await on_trial(harness, stable)


@pytest.mark.parametrize("asked", [False, True])
async def test_a_canary_that_fails_beside_an_unknown_spec_goes_back(*, asked: bool) -> None:
    """Who asked for it gets it, and one that was there when the record was lost is judged on."""
    if asked:
        harness, stable = await edited_unknown()
        await harness.run_for(60)
        assert await retried(harness.kube, KEY, harness.clock.at_s)
        harness.loop.wake()
        await on_trial(harness, stable)
    else:
        harness = LoopHarness(PLAIN)
        await harness.until_ready()
        (stable,) = harness.kube.names(DEPLOYMENT)
        harness.edit({"engine.image": NEWER})
        await on_trial(harness, stable)
        lose(harness, TUNING)
    await harness.run_for(1500)
    assert harness.status["rollout"]["stage"] == "RolledBack"
    harness.play_controllers()
    await harness.run_for(60)
    asked_for = {
        each["metadata"]["name"]: each["spec"]["replicas"]
        for each in harness.kube.all_of(DEPLOYMENT)
    }
    assert {name: count for name, count in asked_for.items() if count} == {stable: 3}
    assert (harness.status["ready"], harness.condition("Degraded")["reason"]) == (
        "3/3",
        "RolledBack",
    )


@pytest.mark.parametrize("retried", [False, True])
async def test_a_veto_outlives_what_was_kept(*, retried: bool) -> None:
    """The status tells of it, though another name of the same spec runs.

    What somebody asked to try once more, before the record of that was lost, is not tried again.
    """
    harness = LoopHarness({**FLEET, "engine.startupMinutes": 1})
    await harness.until_ready()
    (stable,) = harness.kube.names(DEPLOYMENT)
    harness.edit({"engine.version": "0.32.0"})
    for _ in range(1 + retried):
        await on_trial(harness, stable)
        await harness.run_for(1500)
        harness.play_controllers()
        await harness.run_for(60)
        assert harness.status["rollout"]["stage"] == "RolledBack"
        if retried:
            harness.resource["metadata"].setdefault("annotations", {})[ANNOTATION_RETRY_ROLLOUT] = (
                "1"
            )
            harness.loop.wake()
    pods = harness.kube.names(POD)
    lose(harness, TUNING)
    await harness.run_for(600)
    assert harness.status["rollout"]["stage"] == "RolledBack"
    assert harness.kube.names(POD) == pods
    assert harness.kube.written("Deployment") == []


def asked_for(harness: LoopHarness) -> dict[str, int]:
    found = harness.kube.all_of(DEPLOYMENT)
    return {each["metadata"]["name"]: each["spec"]["replicas"] for each in found}


async def rolled_back_to_the_unknown() -> tuple[LoopHarness, str, str]:
    """Three replicas of a spec that nothing says any more, beside a revision that is vetoed."""
    harness = LoopHarness(PLAIN)
    await harness.until_ready()
    (stable,) = harness.kube.names(DEPLOYMENT)
    harness.edit({"engine.image": NEWER})
    await on_trial(harness, stable)
    (vetoed,) = set(harness.kube.names(DEPLOYMENT)) - {stable}
    await harness.run_for(1500)
    for _ in range(2):
        harness.play_controllers()
        await harness.run_for(60)
    kept = harness.kube.find(CONFIG_MAP, TUNING)
    lost = {"stableSpec.json", "lastGoodSpec.json"}
    data = {key: text for key, text in kept["data"].items() if key not in lost}
    harness.kube.put(CONFIG_MAP, {**kept, "data": data})
    harness.restart()
    await harness.tick()
    return harness, stable, vetoed


@pytest.mark.parametrize("paused", [True, False])
async def test_beside_a_veto_the_status_says_that_the_spec_which_serves_is_unknown(
    *, paused: bool
) -> None:
    harness, stable, vetoed = await rolled_back_to_the_unknown()
    if paused:
        harness.edit({"rollout.paused": True})
    await harness.run_for(60)
    assert asked_for(harness) == {stable: 3}
    progressing, degraded = harness.condition("Progressing"), harness.condition("Degraded")
    assert (progressing["status"], progressing["reason"]) == ("False", "RolledBack")
    assert f"{vetoed.removeprefix('kimi-')} gets no pod" in progressing["message"]
    assert "3 of 3 replicas of revision" in progressing["message"]
    assert "is not known any more, and its pods stay as they are" in degraded["message"]


@pytest.mark.parametrize("paused", [True, False])
async def test_with_nothing_left_the_vetoed_one_serves_until_the_stable_one_is_back(
    *, paused: bool
) -> None:
    harness, stable, vetoed = await rolled_back_to_the_unknown()
    if paused:
        harness.edit({"rollout.paused": True})
    removed = harness.kube.find(DEPLOYMENT, stable)
    harness.kube.remove(DEPLOYMENT, "llm", stable)
    for pod in harness.kube.names(POD):
        harness.kube.remove(POD, "llm", pod)
    harness.loop.wake()
    await harness.tick()
    assert asked_for(harness) == {vetoed: 3}
    degraded = harness.condition("Degraded")
    assert (degraded["status"], degraded["reason"]) == ("True", "RolledBack")
    assert "is started everywhere, until spec asks for" in degraded["message"]
    assert harness.condition("Progressing")["reason"] == "Starting"
    if paused:
        harness.edit({"rollout.paused": False})
    # As `kubectl replace --force`, or a backup, makes it again.
    harness.kube.put(DEPLOYMENT, removed)
    harness.loop.wake()
    for _ in range(4):
        harness.play_controllers()
        await harness.run_for(60)
    assert asked_for(harness) == {stable: 3, vetoed: 0}


@pytest.mark.parametrize("restarted", [True, False])
@pytest.mark.parametrize("lost", [(DEPTH,), (DEPTH, TUNING)])
async def test_the_depth_document_is_written_anew_with_the_depth_in_force(
    *, lost: tuple[str, ...], restarted: bool
) -> None:
    harness = await tuned()
    before = document(harness)
    lose(harness, *lost, restarted=restarted)
    await harness.tick()
    assert document(harness)["schedule"] == before["schedule"]
    # Newer than any that an engine holds.
    assert document(harness)["generation"] > before["generation"]


async def test_so_is_one_that_is_junk() -> None:
    harness = await tuned()
    found = harness.kube.find(CONFIG_MAP, DEPTH)
    harness.kube.put(CONFIG_MAP, {**found, "data": {"depth.json": "junk"}})
    harness.restart()
    await harness.tick()
    assert schedule(harness) == [[1, 1024, 7]]


async def test_what_the_spec_no_longer_allows_is_not_written_anew() -> None:
    harness = await tuned()
    harness.edit({"speculation.tuning.mode": "Advise"})
    lose(harness, DEPTH)
    await harness.tick()
    assert schedule(harness) == [[1, 1024, 3]]


async def test_a_status_that_is_junk_is_no_depth_in_force() -> None:
    harness = await tuned()
    resource = harness.resource
    resource["status"]["depth"]["schedule"] = [[1, 2], [5, 4, 3, 2]]
    lose(harness, DEPTH)
    await harness.tick()
    assert schedule(harness) == [[1, 1024, 3]]
