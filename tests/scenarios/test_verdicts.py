"""A spec gets its first pod only when it is known to fit, or after 40 s; what is refused gets none.

`A` is the draft that serves, `B` the one that the spec asks for next.
"""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from fathom.cluster.kinds import CONFIG_MAP, DEPLOYMENT, JOB, SPECULATIVE_DEPLOYMENT
from fathom.model_facts import Absence, ModelConfig, ModelFacts
from fathom.model_refs import ModelRef
from fathom.runtime.caches import NOT_YET
from fathom.runtime.loop import RESYNC_S
from support.loop_harness import LoopHarness

TARGET, A, B = ModelRef("org/target"), ModelRef("org/a"), ModelRef("org/b")
FITS = ModelFacts(
    config=ModelConfig(
        architectures=("Eagle3LlamaForCausalLM",), hidden_size=64, vocab_size=256, layers=1
    )
)
UNFIT = ModelFacts(config=ModelConfig(hidden_size=32))
DOWN = ModelFacts(absence=Absence.UNREACHABLE, explanation="it does not answer")
GATED = ModelFacts(absence=Absence.GATED, explanation="it is gated")
OFFLINE = ModelFacts(absence=Absence.OFFLINE, explanation="the hub is not to be asked")
HUB_IS_DOWN = {TARGET: DOWN, A: DOWN, B: DOWN}


def bench_of(models: Mapping[ModelRef, ModelFacts], **changes: Any) -> LoopHarness:
    spec = {"model.id": TARGET.id, "draft.id": A.id, "replicas": 3, **changes}
    return LoopHarness(spec, models=dict(models))


async def serving_a(**changes: Any) -> LoopHarness:
    """Three replicas of A at rest; the hub knows A, and says nothing of B yet."""
    harness = bench_of({TARGET: FITS, A: FITS, B: NOT_YET}, **changes)
    await harness.until_ready()
    return harness


def asked(harness: LoopHarness) -> dict[str, int]:
    """Replicas by draft."""
    found = {}
    for each in harness.kube.all_of(DEPLOYMENT):
        command = json.dumps(each["spec"]["template"])
        draft = next(ref.id for ref in (A, B) if f'"{ref.id}' in command.replace("\\", ""))
        found[draft] = each["spec"]["replicas"]
    return {draft: replicas for draft, replicas in found.items() if replicas}


def kept(harness: LoopHarness) -> dict[str, str]:
    data: dict[str, str] = harness.kube.find(CONFIG_MAP, "kimi-tuning")["data"]
    return data


def last_good_draft(harness: LoopHarness) -> str | None:
    text = kept(harness).get("lastGoodSpec.json")
    return json.loads(text)["draft"]["id"] if text else None


async def passes(harness: LoopHarness, seconds: float) -> None:
    """Passes and controllers in turn, second by second."""
    for _ in range(int(seconds)):
        await harness.tick()
        harness.play_controllers()
        harness.clock.at_s += 1


async def passes_before_ready(harness: LoopHarness, seconds: int) -> None:
    """As `passes`, while no engine has loaded."""
    for _ in range(seconds):
        await harness.tick()
        harness.play_controllers(ready=False)
        harness.clock.at_s += 1


def restart_without_hub(harness: LoopHarness) -> None:
    """Another operator, to which the hub does not answer."""
    harness.models.update(HUB_IS_DOWN)
    harness.restart()


# -- waiting


async def test_a_first_spec_waits_for_its_look_up_and_says_so() -> None:
    harness = bench_of({TARGET: NOT_YET, A: NOT_YET})
    await passes(harness, 39)
    assert harness.kube.names(DEPLOYMENT) == []
    progressing = harness.condition("Progressing")
    assert (progressing["status"], progressing["reason"]) == ("True", "WaitingForHub")
    assert "org/target and org/a" in progressing["message"]
    assert "at most 40 s" in progressing["message"]

    harness.models |= {TARGET: FITS, A: FITS}
    await passes(harness, 2)
    assert asked(harness) == {A.id: 3}


@pytest.mark.parametrize("answer", [NOT_YET, DOWN, GATED])
async def test_after_forty_seconds_what_the_hub_does_not_tell_is_unknown(
    answer: ModelFacts,
) -> None:
    harness = bench_of({TARGET: answer, A: FITS})
    await passes(harness, 40)
    assert harness.kube.names(DEPLOYMENT) == []
    await passes(harness, 2)
    assert asked(harness) == {A.id: 3}
    assert harness.condition("DraftCompatible")["status"] == "Unknown"


async def test_a_sleeping_loop_wakes_when_the_forty_seconds_are_over() -> None:
    harness = bench_of({TARGET: NOT_YET, A: NOT_YET})
    began_s = harness.clock.at_s
    while True:
        delay = await harness.tick()
        if harness.kube.names(DEPLOYMENT):
            break
        harness.clock.at_s += delay or 0
    assert harness.clock.at_s - began_s <= 41


async def test_where_the_hub_is_not_to_be_asked_nothing_waits() -> None:
    harness = bench_of({TARGET: OFFLINE, A: OFFLINE})
    await harness.tick()
    assert asked(harness) == {A.id: 3}


async def test_a_restart_begins_the_waiting_anew_and_skips_none_of_it() -> None:
    harness = bench_of({TARGET: NOT_YET, A: NOT_YET})
    await passes(harness, 30)
    harness.restart()
    await passes(harness, 39)
    assert harness.kube.names(DEPLOYMENT) == []
    await passes(harness, 3)
    assert asked(harness) == {A.id: 3}


async def test_a_clock_that_is_set_back_makes_nobody_wait_for_longer() -> None:
    harness = bench_of({TARGET: NOT_YET, A: NOT_YET})
    await passes(harness, 5)
    harness.clock.at_s -= 3600
    await passes(harness, 43)
    assert asked(harness) == {A.id: 3}


async def test_a_clock_that_is_set_back_settles_a_rollout_all_the_same() -> None:
    harness = await serving_a()
    harness.models[B] = FITS
    harness.edit({"draft.id": B.id})
    await passes(harness, 5)
    harness.clock.at_s -= 3600
    await passes(harness, 14)
    assert asked(harness) == {A.id: 2, B.id: 1}


async def test_weights_are_not_fetched_for_a_pair_that_is_still_asked_for() -> None:
    harness = bench_of({TARGET: NOT_YET, A: NOT_YET}, **{"cache.claimName": "weights"})
    await passes(harness, 39)
    assert harness.kube.all_of(JOB) == []
    await passes(harness, 3)
    assert len(harness.kube.all_of(JOB)) == 1


async def test_scaling_waits_for_nothing() -> None:
    harness = await serving_a()
    restart_without_hub(harness)
    harness.edit({"replicas": 5})
    await harness.tick()
    assert asked(harness) == {A.id: 5}


async def test_beside_what_serves_a_new_one_waits_and_then_only_a_canary_starts() -> None:
    harness = await serving_a()
    harness.edit({"draft.id": B.id})
    await passes(harness, 39)
    assert asked(harness) == {A.id: 3}
    assert harness.condition("Progressing")["reason"] == "WaitingForHub"
    await passes(harness, 300)
    assert asked(harness) == {A.id: 2, B.id: 1}


async def test_an_unknown_canary_that_baked_well_is_promoted() -> None:
    harness = await serving_a()
    harness.metrics.generation = 1
    harness.edit({"draft.id": B.id})
    await harness.until_rolled()
    assert asked(harness) == {B.id: 3}
    assert last_good_draft(harness) == B.id


# -- verdicts that come late


async def test_what_is_refused_while_it_waits_never_gets_a_pod() -> None:
    harness = await serving_a()
    harness.edit({"draft.id": B.id})
    await passes(harness, 20)
    harness.models[B] = UNFIT
    await passes(harness, 120)
    assert asked(harness) == {A.id: 3}
    assert harness.kube.names(DEPLOYMENT) == [harness.kube.names(DEPLOYMENT)[0]]
    assert harness.condition("Degraded")["reason"] == "InvalidSpec"
    assert last_good_draft(harness) == A.id


async def test_what_served_comes_back_though_it_was_paused_when_it_was_kept() -> None:
    harness = await serving_a()
    harness.edit({"rollout.paused": True})
    await passes(harness, 5)
    harness.edit({"draft.id": B.id, "rollout.paused": False})
    await passes(harness, 60)
    assert asked(harness) == {A.id: 2, B.id: 1}
    harness.models[B] = UNFIT
    await passes(harness, 30)
    assert asked(harness) == {A.id: 3}


async def test_a_pause_holds_also_what_is_fallen_back_to() -> None:
    harness = await serving_a()
    harness.edit({"draft.id": B.id})
    await passes(harness, 60)
    harness.models[B] = UNFIT
    harness.edit({"rollout.paused": True})
    await passes(harness, 30)
    assert asked(harness) == {A.id: 2, B.id: 1}
    assert harness.condition("Degraded")["reason"] == "InvalidSpec"


async def test_a_canary_that_is_refused_late_goes_and_what_served_comes_back() -> None:
    harness = await serving_a()
    harness.edit({"draft.id": B.id})
    await passes(harness, 60)
    assert asked(harness) == {A.id: 2, B.id: 1}
    harness.models[B] = UNFIT
    await passes(harness, 30)
    assert asked(harness) == {A.id: 3}
    assert harness.condition("Degraded")["reason"] == "InvalidSpec"
    told = [each.body["message"] for each in harness.kube.written("Event")]
    assert any("its spec is refused, and revision" in message for message in told), told


async def test_what_was_gone_back_to_before_it_was_ready_follows_replicas_for_good() -> None:
    harness = bench_of({TARGET: FITS, A: FITS, B: NOT_YET})
    await harness.tick()
    harness.edit({"draft.id": B.id})
    await passes_before_ready(harness, 12)
    harness.models[B] = UNFIT
    await passes_before_ready(harness, 5)
    assert asked(harness) == {A.id: 3}
    assert harness.condition("Degraded")["reason"] == "InvalidSpec"

    harness.edit({"replicas": 0})
    await passes_before_ready(harness, 5)
    assert asked(harness) == {}
    harness.edit({"replicas": 2})
    await passes_before_ready(harness, 5)
    assert asked(harness) == {A.id: 2}


async def test_what_is_refused_in_the_midst_of_its_promotion_goes_back() -> None:
    harness = await serving_a(**{"rollout.canaryMinutes": 0})
    harness.edit({"draft.id": B.id})
    for _ in range(200):
        await passes(harness, 1)
        if asked(harness) == {A.id: 1, B.id: 2}:
            break
    assert asked(harness) == {A.id: 1, B.id: 2}
    harness.models[B] = UNFIT
    await harness.tick()
    assert asked(harness).get(B.id, 0) <= 2
    await passes(harness, 60)
    assert asked(harness) == {A.id: 3}


async def test_a_first_spec_that_is_refused_before_it_was_ready_grows_no_further() -> None:
    harness = bench_of({TARGET: FITS, A: NOT_YET})
    await passes_before_ready(harness, 45)
    assert asked(harness) == {A.id: 3}
    harness.models[A] = UNFIT
    harness.edit({"replicas": 5})
    for _ in range(5):
        await harness.tick()
    assert asked(harness) == {A.id: 3}
    assert last_good_draft(harness) is None


async def test_what_once_was_ready_is_left_alone_and_goes_on() -> None:
    harness = bench_of({TARGET: FITS, A: NOT_YET})
    await passes(harness, 60)
    assert last_good_draft(harness) == A.id
    harness.models[A] = UNFIT
    await passes(harness, 5)
    assert asked(harness) == {A.id: 3}
    assert harness.condition("Ready")["status"] == "True"
    assert harness.condition("Degraded")["reason"] == "InvalidSpec"


# -- what survives


async def test_what_once_was_ready_comes_back_where_the_next_canary_has_taken_its_place() -> None:
    """The only replica has gone for a canary of another image when the hub refuses both drafts."""
    harness = bench_of({TARGET: DOWN, A: DOWN}, **{"replicas": 1, "rollout.maxUnavailable": 1})
    await passes(harness, 45)
    await harness.until_ready()
    harness.edit({"engine.image": "vllm/vllm-openai:v0.32.1"})
    while asked(harness) == {A.id: 1}:
        await passes(harness, 1)

    harness.models |= {TARGET: FITS, A: UNFIT}
    await passes(harness, 120)

    assert harness.condition("Degraded")["reason"] == "InvalidSpec"
    assert asked(harness) == {A.id: 1}
    assert harness.status["ready"] == "1/1"
    (serving,) = (each for each in harness.kube.all_of(DEPLOYMENT) if each["spec"]["replicas"])
    assert "vllm/vllm-openai:v0.32.0" in json.dumps(serving["spec"]["template"])


async def test_a_refused_edit_stays_refused_after_a_restart_without_a_hub() -> None:
    harness = await serving_a()
    harness.models[B] = UNFIT
    harness.edit({"draft.id": B.id})
    await passes(harness, 5)
    restart_without_hub(harness)
    await passes(harness, 600)
    assert asked(harness) == {A.id: 3}
    assert harness.condition("Degraded")["reason"] == "InvalidSpec"
    assert harness.condition("DraftCompatible")["reason"] == "Incompatible"


async def test_a_first_spec_that_was_refused_stays_so_after_a_restart() -> None:
    harness = bench_of({TARGET: FITS, A: UNFIT})
    await harness.tick()
    restart_without_hub(harness)
    await passes(harness, 60)
    assert harness.kube.names(DEPLOYMENT) == []
    assert harness.condition("DraftCompatible")["reason"] == "Incompatible"


@pytest.mark.parametrize("lost", ["deleted", "emptied"])
async def test_a_refusal_survives_the_loss_of_what_was_kept(lost: str) -> None:
    harness = await serving_a()
    harness.models[B] = UNFIT
    harness.edit({"draft.id": B.id})
    await passes(harness, 5)
    if lost == "deleted":
        harness.kube.remove(CONFIG_MAP, "llm", "kimi-tuning")
    else:
        harness.kube.put(CONFIG_MAP, {**harness.kube.find(CONFIG_MAP, "kimi-tuning"), "data": {}})
    restart_without_hub(harness)
    await passes(harness, 60)
    assert asked(harness) == {A.id: 3}
    assert harness.condition("Degraded")["reason"] == "InvalidSpec"


async def test_an_answer_that_the_hub_forgets_is_kept() -> None:
    harness = await serving_a()
    harness.models[B] = UNFIT
    harness.edit({"draft.id": B.id})
    await passes(harness, 5)
    harness.models[B] = NOT_YET
    await passes(harness, 60)
    assert asked(harness) == {A.id: 3}
    harness.models[B] = FITS
    await passes(harness, 30)
    assert asked(harness) == {A.id: 2, B.id: 1}


async def test_the_last_good_spec_moves_when_its_pods_are_ready_and_no_sooner() -> None:
    harness = await serving_a()
    harness.edit({"draft.id": B.id})
    await passes(harness, 80)
    assert asked(harness) == {A.id: 2, B.id: 1}
    assert last_good_draft(harness) == A.id


async def test_a_slip_in_the_midst_of_a_rollout_does_not_turn_it_round() -> None:
    harness = await serving_a()
    harness.edit({"draft.id": B.id})
    await passes(harness, 60)
    harness.edit({"draft.method": "telepathy"})
    await passes(harness, 30)
    assert asked(harness) == {A.id: 2, B.id: 1}


# -- stale reads


async def test_an_older_generation_than_was_acted_upon_is_not_acted_upon() -> None:
    harness = await serving_a()
    stale = json.loads(json.dumps(harness.resource))
    harness.edit({"replicas": 5})
    await harness.until_ready()
    fresh = json.loads(json.dumps(harness.resource))
    harness.kube._objects[SPECULATIVE_DEPLOYMENT, "llm", "kimi"] = stale
    for each in (harness.loop, harness.restart()):
        each.wake()
        delay = await each.tick()
        assert delay is not None
        assert delay <= 2
        assert asked(harness) == {A.id: 5}
    harness.kube._objects[SPECULATIVE_DEPLOYMENT, "llm", "kimi"] = fresh
    await harness.until_ready()
    assert harness.status["ready"] == "5/5"


async def test_a_status_that_is_ahead_of_its_spec_is_not_acted_upon() -> None:
    harness = await serving_a()
    odd = json.loads(json.dumps(harness.resource))
    odd["status"]["observedGeneration"] = 7
    odd["spec"]["replicas"] = 1
    harness.kube._objects[SPECULATIVE_DEPLOYMENT, "llm", "kimi"] = odd
    delays_s = [await harness.tick() or 0.0 for _ in range(10)]
    assert asked(harness) == {A.id: 3}
    # Nobody tells when reads are current again.
    assert max(delays_s) == RESYNC_S
    (event,) = [
        each for each in harness.kube.written("Event") if each.body["reason"] == "StaleRead"
    ]
    assert "generation 1 of this resource, and generation 7 was acted upon" in event.body["message"]
