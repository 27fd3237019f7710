"""A spec gets its first pod only when it is known to fit, or after 40 s; what is refused gets none.

`A` is the draft that serves, `B` the one that the spec asks for next.
"""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from fathom.core.cluster.kinds import CONFIG_MAP, DEPLOYMENT, JOB, SPECULATIVE_DEPLOYMENT
from fathom.core.models.config import ModelConfig
from fathom.core.models.facts import Absence, ModelFacts, ModelRef
from fathom.runtime.loop import RESYNC_S
from fathom.runtime.model_cache import NOT_YET
from support.bench import Bench

TARGET, A, B = ModelRef("org/target"), ModelRef("org/a"), ModelRef("org/b")
FITS = ModelFacts(ModelConfig(hidden_size=64))
UNFIT = ModelFacts(ModelConfig(hidden_size=32))
DOWN = ModelFacts(absence=Absence.UNREACHABLE, explanation="it does not answer")
GATED = ModelFacts(absence=Absence.GATED, explanation="it is gated")
OFFLINE = ModelFacts(absence=Absence.OFFLINE, explanation="the hub is not to be asked")
HUB_IS_DOWN = {TARGET: DOWN, A: DOWN, B: DOWN}


def bench_of(models: Mapping[ModelRef, ModelFacts], **changes: Any) -> Bench:
    spec = {"model.id": TARGET.id, "draft.id": A.id, "replicas": 3, **changes}
    return Bench(spec, models=dict(models))


async def serving_a(**changes: Any) -> Bench:
    """Three replicas of A at rest; the hub knows A, and says nothing of B yet."""
    bench = bench_of({TARGET: FITS, A: FITS, B: NOT_YET}, **changes)
    await bench.until_ready()
    return bench


def asked(bench: Bench) -> dict[str, int]:
    """Replicas by draft."""
    found = {}
    for each in bench.kube.all_of(DEPLOYMENT):
        command = json.dumps(each["spec"]["template"])
        draft = next(ref.id for ref in (A, B) if f'"{ref.id}' in command.replace("\\", ""))
        found[draft] = each["spec"]["replicas"]
    return {draft: replicas for draft, replicas in found.items() if replicas}


def kept(bench: Bench) -> dict[str, str]:
    data: dict[str, str] = bench.kube.find(CONFIG_MAP, "kimi-tuning")["data"]
    return data


def last_good_draft(bench: Bench) -> str | None:
    text = kept(bench).get("lastGoodSpec.json")
    return json.loads(text)["draft"]["id"] if text else None


async def passes(bench: Bench, seconds: float) -> None:
    """Passes and controllers in turn, second by second."""
    for _ in range(int(seconds)):
        await bench.tick()
        bench.play_controllers()
        bench.clock.at_s += 1


async def passes_before_ready(bench: Bench, seconds: int) -> None:
    """As `passes`, while no engine has loaded."""
    for _ in range(seconds):
        await bench.tick()
        bench.play_controllers(ready=False)
        bench.clock.at_s += 1


def restart_without_hub(bench: Bench) -> None:
    """Another operator, to which the hub does not answer."""
    bench.models.update(HUB_IS_DOWN)
    bench.restart()


# -- waiting


async def test_a_first_spec_waits_for_its_look_up_and_says_so() -> None:
    bench = bench_of({TARGET: NOT_YET, A: NOT_YET})
    await passes(bench, 39)
    assert bench.kube.names(DEPLOYMENT) == []
    progressing = bench.condition("Progressing")
    assert (progressing["status"], progressing["reason"]) == ("True", "WaitingForHub")
    assert "org/target and org/a" in progressing["message"]
    assert "at most 40 s" in progressing["message"]

    bench.models |= {TARGET: FITS, A: FITS}
    await passes(bench, 2)
    assert asked(bench) == {A.id: 3}


@pytest.mark.parametrize("answer", [NOT_YET, DOWN, GATED])
async def test_after_forty_seconds_what_the_hub_does_not_tell_is_unknown(
    answer: ModelFacts,
) -> None:
    bench = bench_of({TARGET: answer, A: FITS})
    await passes(bench, 40)
    assert bench.kube.names(DEPLOYMENT) == []
    await passes(bench, 2)
    assert asked(bench) == {A.id: 3}
    assert bench.condition("DraftCompatible")["status"] == "Unknown"


async def test_a_sleeping_loop_wakes_when_the_forty_seconds_are_over() -> None:
    bench = bench_of({TARGET: NOT_YET, A: NOT_YET})
    began_s = bench.clock.at_s
    while True:
        delay = await bench.tick()
        if bench.kube.names(DEPLOYMENT):
            break
        bench.clock.at_s += delay or 0
    assert bench.clock.at_s - began_s <= 41


async def test_where_the_hub_is_not_to_be_asked_nothing_waits() -> None:
    bench = bench_of({TARGET: OFFLINE, A: OFFLINE})
    await bench.tick()
    assert asked(bench) == {A.id: 3}


async def test_a_restart_begins_the_waiting_anew_and_skips_none_of_it() -> None:
    bench = bench_of({TARGET: NOT_YET, A: NOT_YET})
    await passes(bench, 30)
    bench.restart()
    await passes(bench, 39)
    assert bench.kube.names(DEPLOYMENT) == []
    await passes(bench, 3)
    assert asked(bench) == {A.id: 3}


async def test_a_clock_that_is_set_back_makes_nobody_wait_for_longer() -> None:
    bench = bench_of({TARGET: NOT_YET, A: NOT_YET})
    await passes(bench, 5)
    bench.clock.at_s -= 3600
    await passes(bench, 43)
    assert asked(bench) == {A.id: 3}


async def test_a_clock_that_is_set_back_settles_a_rollout_all_the_same() -> None:
    bench = await serving_a()
    bench.models[B] = FITS
    bench.edit({"draft.id": B.id})
    await passes(bench, 5)
    bench.clock.at_s -= 3600
    await passes(bench, 14)
    assert asked(bench) == {A.id: 2, B.id: 1}


async def test_weights_are_not_fetched_for_a_pair_that_is_still_asked_for() -> None:
    bench = bench_of({TARGET: NOT_YET, A: NOT_YET}, **{"cache.claimName": "weights"})
    await passes(bench, 39)
    assert bench.kube.all_of(JOB) == []
    await passes(bench, 3)
    assert len(bench.kube.all_of(JOB)) == 1


async def test_scaling_waits_for_nothing() -> None:
    bench = await serving_a()
    restart_without_hub(bench)
    bench.edit({"replicas": 5})
    await bench.tick()
    assert asked(bench) == {A.id: 5}


async def test_beside_what_serves_a_new_one_waits_and_then_only_a_canary_starts() -> None:
    bench = await serving_a()
    bench.edit({"draft.id": B.id})
    await passes(bench, 39)
    assert asked(bench) == {A.id: 3}
    assert bench.condition("Progressing")["reason"] == "WaitingForHub"
    await passes(bench, 300)
    assert asked(bench) == {A.id: 2, B.id: 1}


async def test_an_unknown_canary_that_baked_well_is_promoted() -> None:
    bench = await serving_a()
    bench.metrics.generation = 1
    bench.edit({"draft.id": B.id})
    await bench.until_rolled()
    assert asked(bench) == {B.id: 3}
    assert last_good_draft(bench) == B.id


# -- verdicts that come late


async def test_what_is_refused_while_it_waits_never_gets_a_pod() -> None:
    bench = await serving_a()
    bench.edit({"draft.id": B.id})
    await passes(bench, 20)
    bench.models[B] = UNFIT
    await passes(bench, 120)
    assert asked(bench) == {A.id: 3}
    assert bench.kube.names(DEPLOYMENT) == [bench.kube.names(DEPLOYMENT)[0]]
    assert bench.condition("Degraded")["reason"] == "InvalidSpec"
    assert last_good_draft(bench) == A.id


async def test_what_served_comes_back_though_it_was_paused_when_it_was_kept() -> None:
    bench = await serving_a()
    bench.edit({"rollout.paused": True})
    await passes(bench, 5)
    bench.edit({"draft.id": B.id, "rollout.paused": False})
    await passes(bench, 60)
    assert asked(bench) == {A.id: 2, B.id: 1}
    bench.models[B] = UNFIT
    await passes(bench, 30)
    assert asked(bench) == {A.id: 3}


async def test_a_pause_holds_also_what_is_fallen_back_to() -> None:
    bench = await serving_a()
    bench.edit({"draft.id": B.id})
    await passes(bench, 60)
    bench.models[B] = UNFIT
    bench.edit({"rollout.paused": True})
    await passes(bench, 30)
    assert asked(bench) == {A.id: 2, B.id: 1}
    assert bench.condition("Degraded")["reason"] == "InvalidSpec"


async def test_a_canary_that_is_refused_late_goes_and_what_served_comes_back() -> None:
    bench = await serving_a()
    bench.edit({"draft.id": B.id})
    await passes(bench, 60)
    assert asked(bench) == {A.id: 2, B.id: 1}
    bench.models[B] = UNFIT
    await passes(bench, 30)
    assert asked(bench) == {A.id: 3}
    assert bench.condition("Degraded")["reason"] == "InvalidSpec"
    told = [each.body["message"] for each in bench.kube.written("Event")]
    assert any("its spec is refused, and revision" in message for message in told), told


async def test_what_was_gone_back_to_before_it_was_ready_follows_replicas_for_good() -> None:
    bench = bench_of({TARGET: FITS, A: FITS, B: NOT_YET})
    await bench.tick()
    bench.edit({"draft.id": B.id})
    await passes_before_ready(bench, 12)
    bench.models[B] = UNFIT
    await passes_before_ready(bench, 5)
    assert asked(bench) == {A.id: 3}
    assert bench.condition("Degraded")["reason"] == "InvalidSpec"

    bench.edit({"replicas": 0})
    await passes_before_ready(bench, 5)
    assert asked(bench) == {}
    bench.edit({"replicas": 2})
    await passes_before_ready(bench, 5)
    assert asked(bench) == {A.id: 2}


async def test_what_is_refused_in_the_midst_of_its_promotion_goes_back() -> None:
    bench = await serving_a(**{"rollout.canaryMinutes": 0})
    bench.edit({"draft.id": B.id})
    for _ in range(200):
        await passes(bench, 1)
        if asked(bench) == {A.id: 1, B.id: 2}:
            break
    assert asked(bench) == {A.id: 1, B.id: 2}
    bench.models[B] = UNFIT
    await bench.tick()
    assert asked(bench).get(B.id, 0) <= 2
    await passes(bench, 60)
    assert asked(bench) == {A.id: 3}


async def test_a_first_spec_that_is_refused_before_it_was_ready_grows_no_further() -> None:
    bench = bench_of({TARGET: FITS, A: NOT_YET})
    await passes_before_ready(bench, 45)
    assert asked(bench) == {A.id: 3}
    bench.models[A] = UNFIT
    bench.edit({"replicas": 5})
    for _ in range(5):
        await bench.tick()
    assert asked(bench) == {A.id: 3}
    assert last_good_draft(bench) is None


async def test_what_once_was_ready_is_left_alone_and_goes_on() -> None:
    bench = bench_of({TARGET: FITS, A: NOT_YET})
    await passes(bench, 60)
    assert last_good_draft(bench) == A.id
    bench.models[A] = UNFIT
    await passes(bench, 5)
    assert asked(bench) == {A.id: 3}
    assert bench.condition("Ready")["status"] == "True"
    assert bench.condition("Degraded")["reason"] == "InvalidSpec"


# -- what survives


async def test_what_once_was_ready_comes_back_where_the_next_canary_has_taken_its_place() -> None:
    """The only replica has gone for a canary of another image when the hub refuses both drafts."""
    bench = bench_of({TARGET: DOWN, A: DOWN}, **{"replicas": 1, "rollout.maxUnavailable": 1})
    await passes(bench, 45)
    await bench.until_ready()
    bench.edit({"engine.image": "vllm/vllm-openai:v0.32.1"})
    while asked(bench) == {A.id: 1}:
        await passes(bench, 1)

    bench.models |= {TARGET: FITS, A: UNFIT}
    await passes(bench, 120)

    assert bench.condition("Degraded")["reason"] == "InvalidSpec"
    assert asked(bench) == {A.id: 1}
    assert bench.status["ready"] == "1/1"
    (serving,) = (each for each in bench.kube.all_of(DEPLOYMENT) if each["spec"]["replicas"])
    assert "vllm/vllm-openai:v0.32.0" in json.dumps(serving["spec"]["template"])


async def test_a_refused_edit_stays_refused_after_a_restart_without_a_hub() -> None:
    bench = await serving_a()
    bench.models[B] = UNFIT
    bench.edit({"draft.id": B.id})
    await passes(bench, 5)
    restart_without_hub(bench)
    await passes(bench, 600)
    assert asked(bench) == {A.id: 3}
    assert bench.condition("Degraded")["reason"] == "InvalidSpec"
    assert bench.condition("DraftCompatible")["reason"] == "Incompatible"


async def test_a_first_spec_that_was_refused_stays_so_after_a_restart() -> None:
    bench = bench_of({TARGET: FITS, A: UNFIT})
    await bench.tick()
    restart_without_hub(bench)
    await passes(bench, 60)
    assert bench.kube.names(DEPLOYMENT) == []
    assert bench.condition("DraftCompatible")["reason"] == "Incompatible"


@pytest.mark.parametrize("lost", ["deleted", "emptied"])
async def test_a_refusal_survives_the_loss_of_what_was_kept(lost: str) -> None:
    bench = await serving_a()
    bench.models[B] = UNFIT
    bench.edit({"draft.id": B.id})
    await passes(bench, 5)
    if lost == "deleted":
        bench.kube.remove(CONFIG_MAP, "llm", "kimi-tuning")
    else:
        bench.kube.put(CONFIG_MAP, {**bench.kube.find(CONFIG_MAP, "kimi-tuning"), "data": {}})
    restart_without_hub(bench)
    await passes(bench, 60)
    assert asked(bench) == {A.id: 3}
    assert bench.condition("Degraded")["reason"] == "InvalidSpec"


async def test_an_answer_that_the_hub_forgets_is_kept() -> None:
    bench = await serving_a()
    bench.models[B] = UNFIT
    bench.edit({"draft.id": B.id})
    await passes(bench, 5)
    bench.models[B] = NOT_YET
    await passes(bench, 60)
    assert asked(bench) == {A.id: 3}
    bench.models[B] = FITS
    await passes(bench, 30)
    assert asked(bench) == {A.id: 2, B.id: 1}


async def test_the_last_good_spec_moves_when_its_pods_are_ready_and_no_sooner() -> None:
    bench = await serving_a()
    bench.edit({"draft.id": B.id})
    await passes(bench, 80)
    assert asked(bench) == {A.id: 2, B.id: 1}
    assert last_good_draft(bench) == A.id


async def test_a_slip_in_the_midst_of_a_rollout_does_not_turn_it_round() -> None:
    bench = await serving_a()
    bench.edit({"draft.id": B.id})
    await passes(bench, 60)
    bench.edit({"draft.method": "telepathy"})
    await passes(bench, 30)
    assert asked(bench) == {A.id: 2, B.id: 1}


# -- stale reads


async def test_an_older_generation_than_was_acted_upon_is_not_acted_upon() -> None:
    bench = await serving_a()
    stale = json.loads(json.dumps(bench.resource))
    bench.edit({"replicas": 5})
    await bench.until_ready()
    fresh = json.loads(json.dumps(bench.resource))
    bench.kube._objects[SPECULATIVE_DEPLOYMENT, "llm", "kimi"] = stale
    for each in (bench.loop, bench.restart()):
        each.wake()
        delay = await each.tick()
        assert delay is not None
        assert delay <= 2
        assert asked(bench) == {A.id: 5}
    bench.kube._objects[SPECULATIVE_DEPLOYMENT, "llm", "kimi"] = fresh
    await bench.until_ready()
    assert bench.status["ready"] == "5/5"


async def test_a_status_that_is_ahead_of_its_spec_is_not_acted_upon() -> None:
    bench = await serving_a()
    odd = json.loads(json.dumps(bench.resource))
    odd["status"]["observedGeneration"] = 7
    odd["spec"]["replicas"] = 1
    bench.kube._objects[SPECULATIVE_DEPLOYMENT, "llm", "kimi"] = odd
    delays_s = [await bench.tick() or 0.0 for _ in range(10)]
    assert asked(bench) == {A.id: 3}
    # Nobody tells when reads are current again.
    assert max(delays_s) == RESYNC_S
    (event,) = [each for each in bench.kube.written("Event") if each.body["reason"] == "StaleRead"]
    assert "generation 1 of this resource, and generation 7 was acted upon" in event.body["message"]
