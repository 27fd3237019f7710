"""What the operator keeps is deleted by hand: it is written anew, and no pod is restarted for it.

The fleets are of releases that judged their engines otherwise, so that this one would give their
pods another revision.
"""

import pytest

from fathom.api.names import ANNOTATION_RETRY_ROLLOUT
from fathom.core.cluster.kinds import CONFIG_MAP, DEPLOYMENT, POD
from fathom.inspect.asking.retry_command import retried
from fathom.tuning.tuner import decide as tune
from scenarios import test_earlier_adaptive_fleets as adaptive
from scenarios.test_arm import compared, pass_minutes
from scenarios.test_judged_otherwise import FLEET, LIVE, deeper, schedule, upgraded
from scenarios.test_quality_in_the_loop import document
from support.bench import KEY, Bench

TUNING, DEPTH = "kimi-tuning", "kimi-depth"
NEWER = "vllm/vllm-openai:v0.32.1"
PLAIN = {"replicas": 3, "engine.image": "vllm/vllm-openai:v0.32.0", "engine.startupMinutes": 1}


def lose(bench: Bench, *config_maps: str, restarted: bool = True) -> None:
    """Deleted while the operator is away, or under its eyes."""
    for each in config_maps:
        bench.kube.remove(CONFIG_MAP, "llm", each)
    bench.kube.writes.clear()
    if restarted:
        bench.restart()
    bench.loop.wake()


async def on_trial(bench: Bench, stable: str = f"kimi-{LIVE}") -> None:
    """A canary is there, and does not become ready."""
    await bench.run_for(120)
    bench.play_controllers()
    await bench.run_for(60)
    (canary,) = set(bench.kube.names(DEPLOYMENT)) - {stable}
    bench.play_controllers(ready=False)
    for pod in bench.kube.names(POD):
        bench.set_ready(pod, ready=not pod.startswith(canary))


async def tuned() -> Bench:
    """A fleet whose depth the tuner has moved from 3 to 7."""
    bench = upgraded()
    deeper(bench)
    await bench.run_for(300)
    assert schedule(bench) == [[1, 1024, 7]]
    bench.metrics.generation = document(bench)["generation"]
    bench.decide = tune
    await bench.run_for(60)
    return bench


@pytest.mark.parametrize("restarted", [True, False])
async def test_a_fleet_that_is_live_by_an_earlier_judgement_is_not_rolled(
    *, restarted: bool
) -> None:
    bench = await tuned()
    pods = bench.kube.names(POD)
    lose(bench, TUNING, restarted=restarted)
    await bench.run_for(600)
    assert bench.kube.written("Deployment") == []
    assert bench.kube.names(POD) == pods
    assert bench.kube.find(CONFIG_MAP, TUNING)["data"]["revision"] == LIVE
    assert schedule(bench) == [[1, 1024, 7]]
    assert bench.status["engine"]["actuation"] == "Live"


async def test_nor_is_it_where_what_was_kept_is_junk() -> None:
    bench = await tuned()
    kept = bench.kube.find(CONFIG_MAP, TUNING)
    bench.kube.put(CONFIG_MAP, {**kept, "data": {**kept["data"], "lastGoodSpec.json": "junk"}})
    lose(bench)
    await bench.run_for(600)
    assert bench.kube.written("Deployment") == []
    assert bench.kube.find(CONFIG_MAP, TUNING)["data"]["revision"] == LIVE


@pytest.mark.parametrize("wish", ["Enabled", "Canary"])
async def test_fleets_with_adaptive_verification_stay_as_they_are(wish: str) -> None:
    bench = adaptive.upgraded(wish)
    await pass_minutes(bench, 2)
    pods = bench.kube.names(POD)
    lose(bench, TUNING)
    await pass_minutes(bench, 10)
    assert bench.kube.written("Deployment") == []
    assert bench.kube.names(POD) == pods
    if wish == "Canary":
        assert compared(bench)["revision"] == adaptive.OF_EARLIER


async def edited_unknown() -> tuple[Bench, str]:
    """Three replicas whose spec was edited while the record of what they are was lost."""
    bench = Bench(PLAIN)
    await bench.until_ready()
    (stable,) = bench.kube.names(DEPLOYMENT)
    bench.edit({"engine.image": NEWER})
    lose(bench, TUNING)
    return bench, stable


async def test_an_edit_waits_where_nobody_knows_what_could_be_gone_back_to() -> None:
    bench, stable = await edited_unknown()
    await bench.run_for(900)
    assert bench.kube.names(DEPLOYMENT) == [stable]
    degraded = bench.condition("Degraded")
    assert (degraded["status"], degraded["reason"]) == ("True", "StableSpecUnknown")
    assert "no canary is started" in degraded["message"]
    assert bench.status["ready"] == "3/3"
    writes = len(bench.kube.writes)
    await bench.run_for(900)
    assert len(bench.kube.writes) == writes


async def test_it_rolls_once_that_spec_was_put_back_for_a_while() -> None:
    bench, stable = await edited_unknown()
    await bench.run_for(60)
    bench.edit({"engine.image": PLAIN["engine.image"]})
    await bench.run_for(120)
    assert bench.condition("Degraded")["status"] == "False"
    assert bench.kube.names(DEPLOYMENT) == [stable]
    bench.edit({"engine.image": NEWER})
    await on_trial(bench, stable)


@pytest.mark.parametrize("asked", [False, True])
async def test_a_canary_that_fails_beside_an_unknown_spec_goes_back(*, asked: bool) -> None:
    """Who asked for it gets it, and one that was there when the record was lost is judged on."""
    if asked:
        bench, stable = await edited_unknown()
        await bench.run_for(60)
        assert await retried(bench.kube, KEY, bench.clock.at_s)
        bench.loop.wake()
        await on_trial(bench, stable)
    else:
        bench = Bench(PLAIN)
        await bench.until_ready()
        (stable,) = bench.kube.names(DEPLOYMENT)
        bench.edit({"engine.image": NEWER})
        await on_trial(bench, stable)
        lose(bench, TUNING)
    await bench.run_for(1500)
    assert bench.status["rollout"]["stage"] == "RolledBack"
    bench.play_controllers()
    await bench.run_for(60)
    asked_for = {
        each["metadata"]["name"]: each["spec"]["replicas"] for each in bench.kube.all_of(DEPLOYMENT)
    }
    assert {name: count for name, count in asked_for.items() if count} == {stable: 3}
    assert (bench.status["ready"], bench.condition("Degraded")["reason"]) == ("3/3", "RolledBack")


@pytest.mark.parametrize("retried", [False, True])
async def test_a_veto_outlives_what_was_kept(*, retried: bool) -> None:
    """The status tells of it, though another name of the same spec runs.

    What somebody asked to try once more, before the record of that was lost, is not tried again.
    """
    bench = Bench({**FLEET, "engine.startupMinutes": 1})
    await bench.until_ready()
    (stable,) = bench.kube.names(DEPLOYMENT)
    bench.edit({"engine.version": "0.32.0"})
    for _ in range(1 + retried):
        await on_trial(bench, stable)
        await bench.run_for(1500)
        bench.play_controllers()
        await bench.run_for(60)
        assert bench.status["rollout"]["stage"] == "RolledBack"
        if retried:
            bench.resource["metadata"].setdefault("annotations", {})[ANNOTATION_RETRY_ROLLOUT] = "1"
            bench.loop.wake()
    pods = bench.kube.names(POD)
    lose(bench, TUNING)
    await bench.run_for(600)
    assert bench.status["rollout"]["stage"] == "RolledBack"
    assert bench.kube.names(POD) == pods
    assert bench.kube.written("Deployment") == []


@pytest.mark.parametrize("restarted", [True, False])
@pytest.mark.parametrize("lost", [(DEPTH,), (DEPTH, TUNING)])
async def test_the_depth_document_is_written_anew_with_the_depth_in_force(
    *, lost: tuple[str, ...], restarted: bool
) -> None:
    bench = await tuned()
    before = document(bench)
    lose(bench, *lost, restarted=restarted)
    await bench.tick()
    assert document(bench)["schedule"] == before["schedule"]
    # Newer than any that an engine holds.
    assert document(bench)["generation"] > before["generation"]


async def test_so_is_one_that_is_junk() -> None:
    bench = await tuned()
    found = bench.kube.find(CONFIG_MAP, DEPTH)
    bench.kube.put(CONFIG_MAP, {**found, "data": {"depth.json": "junk"}})
    bench.restart()
    await bench.tick()
    assert schedule(bench) == [[1, 1024, 7]]


async def test_what_the_spec_no_longer_allows_is_not_written_anew() -> None:
    bench = await tuned()
    bench.edit({"speculation.tuning.mode": "Advise"})
    lose(bench, DEPTH)
    await bench.tick()
    assert schedule(bench) == [[1, 1024, 3]]


async def test_a_status_that_is_junk_is_no_depth_in_force() -> None:
    bench = await tuned()
    resource = bench.resource
    resource["status"]["depth"]["schedule"] = [[1, 2], [5, 4, 3, 2]]
    lose(bench, DEPTH)
    await bench.tick()
    assert schedule(bench) == [[1, 1024, 3]]
