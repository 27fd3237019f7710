"""Whatever stands in the tuning ConfigMap: no pass fails for it, and it moves no fleet."""

import copy
import json
from typing import Any

import pytest

from fathom.cli.rollout import retried
from fathom.cluster.kinds import CONFIG_MAP, DEPLOYMENT, SPECULATIVE_DEPLOYMENT
from fathom.model_facts import Absence, ModelConfig, ModelFacts
from fathom.model_refs import ModelRef
from support.loop_harness import KEY, LoopHarness

TARGET, DRAFT, OTHER = ModelRef("org/target"), ModelRef("org/draft"), ModelRef("org/other")
FITS = ModelFacts(
    config=ModelConfig(
        architectures=("Eagle3LlamaForCausalLM",), hidden_size=64, vocab_size=256, layers=1
    )
)
DOWN = ModelFacts(absence=Absence.UNREACHABLE, explanation="it does not answer")
HUB_IS_DOWN = {TARGET: DOWN, DRAFT: DOWN, OTHER: DOWN}

JUNK = {
    "deep": "[" * 20_000,
    "deep objects": '{"a":' * 20_000,
    "not JSON": "not JSON",
    "empty": "",
    "of another type": "[1, 2]",
    "a number": "7",
    "null": "null",
    "of 5,000 digits": "1" * 5_000,
    "infinite": "1e999",
    "no text": "\ud800",
}
LEARNT = ("state.json", "rollout.json", "refreshes.json", "weights.json", "quality.json")
HOLDING = ("lastGoodSpec.json", "revision", "acceptedSpec.json", "stableSpec.json", "models.json")


async def serving(**changes: Any) -> LoopHarness:
    spec = {"model.id": TARGET.id, "draft.id": DRAFT.id, "replicas": 3, **changes}
    harness = LoopHarness(spec, models={TARGET: FITS, DRAFT: FITS})
    await harness.until_ready()
    harness.kube.writes.clear()
    return harness


def write(harness: LoopHarness, key: str, text: str) -> None:
    config_map = copy.deepcopy(harness.kube.find(CONFIG_MAP, "kimi-tuning"))
    config_map["data"][key] = text
    harness.kube.put(CONFIG_MAP, config_map)


def kept(harness: LoopHarness) -> dict[str, str]:
    data: dict[str, str] = harness.kube.find(CONFIG_MAP, "kimi-tuning")["data"]
    return data


def events(harness: LoopHarness, reason: str) -> list[str]:
    found = [each.body for each in harness.kube.written("Event")]
    return [each["message"] for each in found if each["reason"] == reason]


async def passes(harness: LoopHarness, seconds: int) -> None:
    for _ in range(seconds):
        await harness.tick()
        harness.play_controllers()
        harness.clock.at_s += 1


@pytest.mark.parametrize("junk", JUNK)
@pytest.mark.parametrize("key", [*LEARNT, *HOLDING, "acceptedRevision", "generation.json"])
async def test_no_junk_in_any_key_fails_a_pass_or_moves_a_pod(key: str, junk: str) -> None:
    harness = await serving()
    write(harness, key, JUNK[junk])
    harness.models |= HUB_IS_DOWN
    harness.restart()
    await passes(harness, 5)
    assert events(harness, "InternalError") == []
    assert harness.kube.written("Deployment") == []
    assert harness.condition("Ready")["status"] == "True"


@pytest.mark.parametrize("key", LEARNT)
async def test_what_was_learnt_is_begun_anew_and_told_once(key: str) -> None:
    harness = await serving()
    write(harness, key, JUNK["deep"])
    harness.restart()
    await passes(harness, 70)
    (message,) = events(harness, "StateReset")
    assert f"{key} of ConfigMap kimi-tuning cannot be read" in message
    assert kept(harness).get(key) != JUNK["deep"]
    harness.kube.writes.clear()
    harness.restart()
    await passes(harness, 200)
    assert harness.kube.writes == []


async def test_what_others_add_to_the_config_map_is_left_alone() -> None:
    harness = await serving()
    write(harness, "theirs", "anything")
    await passes(harness, 200)
    assert harness.kube.writes == []
    assert kept(harness)["theirs"] == "anything"


async def test_what_is_junked_while_the_operator_runs_is_written_again() -> None:
    harness = await serving()
    before = kept(harness)
    for key in before:
        write(harness, key, JUNK["deep"])
    await passes(harness, 70)
    assert kept(harness) == before
    assert harness.kube.written("Deployment") == []


@pytest.mark.parametrize(
    "key", ["acceptedSpec.json", "stableSpec.json", "rollout.json", "training.json"]
)
async def test_a_key_of_ours_that_somebody_adds_while_it_runs_is_voided_once(key: str) -> None:
    harness = await serving()
    assert key not in kept(harness)
    write(harness, key, JUNK["not JSON"])
    await passes(harness, 200)
    assert kept(harness)[key] == "null"
    assert len(harness.kube.written("ConfigMap")) == 1
    assert harness.condition("Degraded")["status"] == "False"
    harness.restart()
    await passes(harness, 200)
    assert len(harness.kube.written("ConfigMap")) == 1


@pytest.mark.parametrize(
    ("keys", "cure"),
    [
        (["lastGoodSpec.json"], "delete this key."),
        (["lastGoodSpec.json", "models.json"], "delete these keys."),
    ],
)
async def test_all_that_cannot_be_read_is_to_be_deleted(keys: list[str], cure: str) -> None:
    harness = await serving()
    for key in keys:
        write(harness, key, JUNK["deep"])
    harness.edit({"draft.id": OTHER.id})
    harness.models |= HUB_IS_DOWN
    harness.restart()
    await passes(harness, 5)
    assert harness.condition("Degraded")["message"].endswith(cure)


@pytest.mark.parametrize("key", ["lastGoodSpec.json", "revision", "models.json"])
async def test_while_it_is_not_known_what_the_spec_asks_for_nothing_rolls(key: str) -> None:
    harness = await serving()
    (before,) = harness.kube.names(DEPLOYMENT)
    write(harness, key, JUNK["deep"])
    harness.edit({"draft.id": OTHER.id})
    harness.models |= HUB_IS_DOWN
    harness.restart()
    await passes(harness, 120)
    assert harness.kube.names(DEPLOYMENT) == [before]
    degraded = harness.condition("Degraded")
    assert (degraded["status"], degraded["reason"]) == ("True", "StateUnreadable")
    assert f"{key} of ConfigMap kimi-tuning cannot be read" in degraded["message"]
    assert harness.condition("Progressing")["reason"] == "StateUnreadable"

    harness.edit({"replicas": 5})
    await passes(harness, 5)
    assert harness.kube.find(DEPLOYMENT, before)["spec"]["replicas"] == 5

    harness.models |= {TARGET: FITS, OTHER: FITS}
    harness.metrics.generation = 1
    if key != "models.json":
        # What serves could not be gone back to: somebody has to want that.
        await passes(harness, 60)
        assert harness.kube.names(DEPLOYMENT) == [before]
        assert harness.condition("Degraded")["reason"] == "StableSpecUnknown"
        assert await retried(harness.kube, KEY, harness.clock.at_s)
    await harness.until_rolled()
    assert harness.kube.names(DEPLOYMENT) != [before]
    assert harness.condition("Degraded")["reason"] == "AsExpected"


async def test_who_takes_the_junk_away_ends_the_waiting() -> None:
    harness = await serving()
    write(harness, "models.json", JUNK["deep"])
    harness.edit({"draft.id": OTHER.id})
    harness.models |= HUB_IS_DOWN
    harness.restart()
    await passes(harness, 60)
    assert harness.condition("Degraded")["reason"] == "StateUnreadable"
    config_map = copy.deepcopy(harness.kube.find(CONFIG_MAP, "kimi-tuning"))
    del config_map["data"]["models.json"]
    harness.kube.put(CONFIG_MAP, config_map)
    await passes(harness, 60)
    assert len(harness.kube.names(DEPLOYMENT)) == 2


async def test_a_veto_survives_the_loss_of_the_rollout() -> None:
    harness, before, _ = await vetoed()
    write(harness, "rollout.json", JUNK["deep"])
    harness.restart()
    await passes(harness, 60)
    assert harness.condition("Degraded")["reason"] == "RolledBack"
    assert harness.kube.find(DEPLOYMENT, before)["spec"]["replicas"] == 3


def report(harness: LoopHarness, **rollout: str) -> None:
    """In the status, as another Fathom would have."""
    resource = copy.deepcopy(harness.resource)
    resource["status"]["rollout"] |= rollout
    harness.kube.put(SPECULATIVE_DEPLOYMENT, resource)


async def vetoed() -> tuple[LoopHarness, str, str]:
    """A fleet that has gone back to the first of two revisions."""
    harness = await serving()
    (before,) = harness.kube.names(DEPLOYMENT)
    harness.edit({"engine.image": "vllm/vllm-openai:v0.32.1"})
    await harness.tick()
    harness.clock.at_s += 11
    await passes(harness, 3)
    (canary,) = set(harness.kube.names(DEPLOYMENT)) - {before}
    for pod in harness.pods_of(canary):
        crashed = {"name": "vllm", "restartCount": 3, "state": {}}
        harness.set_ready(pod["metadata"]["name"], ready=False, containerStatuses=[crashed])
    await harness.tick()
    assert harness.status["rollout"]["stage"] == "RolledBack"
    await passes(harness, 5)
    return harness, before, canary


@pytest.mark.parametrize("kept_too", [True, False], ids=["kept", "in the status alone"])
async def test_a_veto_for_a_reason_of_a_later_fathom_stands(*, kept_too: bool) -> None:
    harness, before, canary = await vetoed()
    later = {**json.loads(kept(harness)["rollout.json"]), "reason": "CanaryHotter", "later": [1]}
    write(harness, "rollout.json", json.dumps(later) if kept_too else JUNK["deep"])
    report(harness, reason="CanaryHotter")
    harness.restart()
    await passes(harness, 60)
    assert len(events(harness, "StateReset")) == (0 if kept_too else 1)
    degraded = harness.condition("Degraded")
    assert degraded["reason"] == "RolledBack"
    assert later["message"] in degraded["message"]
    assert harness.kube.find(DEPLOYMENT, before)["spec"]["replicas"] == 3
    if canary in harness.kube.names(DEPLOYMENT):
        assert harness.kube.find(DEPLOYMENT, canary)["spec"]["replicas"] == 0


async def test_a_rollout_at_a_stage_of_a_later_fathom_begins_anew() -> None:
    harness, before, _ = await vetoed()
    later = {**json.loads(kept(harness)["rollout.json"]), "stage": "Halfway"}
    write(harness, "rollout.json", json.dumps(later))
    report(harness, stage="Halfway")
    harness.restart()
    await harness.tick()
    assert len(events(harness, "StateReset")) == 1
    # From what serves, and by one canary, as any other.
    assert harness.status["rollout"]["stage"] == "Settling"
    assert harness.kube.find(DEPLOYMENT, before)["spec"]["replicas"] == 3
    assert events(harness, "InternalError") == []


async def test_what_a_later_fathom_has_learnt_besides_is_told_and_costs_nothing() -> None:
    harness = await serving()
    later = {**json.loads(kept(harness)["state.json"]), "later": {"a": 1}, "generation": 7}
    watch = dict.fromkeys(("message", "recommendation"), "")
    seen = dict.fromkeys(("first_seen_s", "last_seen_s", "later"), 1.0)
    later["watches"] = [{"kind": "DraftTooWarm", "reason": "WarmerThanItWas", **watch, **seen}]
    write(harness, "state.json", json.dumps(later))
    harness.restart()
    await passes(harness, 70)
    (message,) = events(harness, "StateReset")
    assert message.startswith("parts of state.json of ConfigMap kimi-tuning cannot be read")
    assert json.loads(kept(harness)["state.json"])["generation"] >= 7


@pytest.mark.parametrize("began_at_s", ["1e308", "NaN", "Infinity", "-5", '"soon"', "9" * 400])
async def test_a_rollout_at_no_possible_time_is_none(began_at_s: str) -> None:
    harness = await serving()
    rollout = (
        '{"revision":"bbbbbbbb","stable":"aaaaaaaa","stage":"Promoted","reason":"CanaryAsGood",'
        f'"began_at_s":{began_at_s}}}'
    )
    write(harness, "rollout.json", rollout)
    harness.restart()
    await passes(harness, 3)
    assert events(harness, "InternalError") == []
    assert len(events(harness, "StateReset")) == 1


async def test_a_tuner_that_fails_on_what_it_learnt_begins_anew() -> None:
    harness = await serving()
    good = harness.decide
    harness.decide = lambda snapshot: 1 / 0 if snapshot.state.generation else good(snapshot)  # type: ignore[assignment,return-value]
    write(harness, "state.json", json.dumps({"generation": 7}))
    harness.restart()
    await passes(harness, 3)
    assert len(events(harness, "InternalError")) == 1
    assert harness.condition("Ready")["status"] == "True"
    assert await harness.tick() == 30
