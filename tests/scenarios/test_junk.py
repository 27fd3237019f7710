"""Whatever stands in the tuning ConfigMap: no pass fails for it, and it moves no fleet."""

import copy
import json
from typing import Any

import pytest

from fathom.core.cluster.kinds import CONFIG_MAP, DEPLOYMENT, SPECULATIVE_DEPLOYMENT
from fathom.core.models.config import ModelConfig
from fathom.core.models.facts import Absence, ModelFacts, ModelRef
from fathom.inspect.asking.retry_command import retried
from support.bench import KEY, Bench

TARGET, DRAFT, OTHER = ModelRef("org/target"), ModelRef("org/draft"), ModelRef("org/other")
FITS = ModelFacts(ModelConfig(hidden_size=64))
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


async def serving(**changes: Any) -> Bench:
    spec = {"model.id": TARGET.id, "draft.id": DRAFT.id, "replicas": 3, **changes}
    bench = Bench(spec, models={TARGET: FITS, DRAFT: FITS})
    await bench.until_ready()
    bench.kube.writes.clear()
    return bench


def write(bench: Bench, key: str, text: str) -> None:
    config_map = copy.deepcopy(bench.kube.find(CONFIG_MAP, "kimi-tuning"))
    config_map["data"][key] = text
    bench.kube.put(CONFIG_MAP, config_map)


def kept(bench: Bench) -> dict[str, str]:
    data: dict[str, str] = bench.kube.find(CONFIG_MAP, "kimi-tuning")["data"]
    return data


def events(bench: Bench, reason: str) -> list[str]:
    found = [each.body for each in bench.kube.written("Event")]
    return [each["message"] for each in found if each["reason"] == reason]


async def passes(bench: Bench, seconds: int) -> None:
    for _ in range(seconds):
        await bench.tick()
        bench.play_controllers()
        bench.clock.at_s += 1


@pytest.mark.parametrize("junk", JUNK)
@pytest.mark.parametrize("key", [*LEARNT, *HOLDING, "acceptedRevision", "generation.json"])
async def test_no_junk_in_any_key_fails_a_pass_or_moves_a_pod(key: str, junk: str) -> None:
    bench = await serving()
    write(bench, key, JUNK[junk])
    bench.models |= HUB_IS_DOWN
    bench.restart()
    await passes(bench, 5)
    assert events(bench, "InternalError") == []
    assert bench.kube.written("Deployment") == []
    assert bench.condition("Ready")["status"] == "True"


@pytest.mark.parametrize("key", LEARNT)
async def test_what_was_learnt_is_begun_anew_and_told_once(key: str) -> None:
    bench = await serving()
    write(bench, key, JUNK["deep"])
    bench.restart()
    await passes(bench, 70)
    (message,) = events(bench, "StateReset")
    assert f"{key} of ConfigMap kimi-tuning cannot be read" in message
    assert kept(bench).get(key) != JUNK["deep"]
    bench.kube.writes.clear()
    bench.restart()
    await passes(bench, 200)
    assert bench.kube.writes == []


async def test_what_others_add_to_the_config_map_is_left_alone() -> None:
    bench = await serving()
    write(bench, "theirs", "anything")
    await passes(bench, 200)
    assert bench.kube.writes == []
    assert kept(bench)["theirs"] == "anything"


async def test_what_is_junked_while_the_operator_runs_is_written_again() -> None:
    bench = await serving()
    before = kept(bench)
    for key in before:
        write(bench, key, JUNK["deep"])
    await passes(bench, 70)
    assert kept(bench) == before
    assert bench.kube.written("Deployment") == []


@pytest.mark.parametrize(
    ("keys", "cure"),
    [
        (["lastGoodSpec.json"], "delete this key."),
        (["lastGoodSpec.json", "models.json"], "delete these keys."),
    ],
)
async def test_all_that_cannot_be_read_is_to_be_deleted(keys: list[str], cure: str) -> None:
    bench = await serving()
    for key in keys:
        write(bench, key, JUNK["deep"])
    bench.edit({"draft.id": OTHER.id})
    bench.models |= HUB_IS_DOWN
    bench.restart()
    await passes(bench, 5)
    assert bench.condition("Degraded")["message"].endswith(cure)


@pytest.mark.parametrize("key", ["lastGoodSpec.json", "revision", "models.json"])
async def test_while_it_is_not_known_what_the_spec_asks_for_nothing_rolls(key: str) -> None:
    bench = await serving()
    (before,) = bench.kube.names(DEPLOYMENT)
    write(bench, key, JUNK["deep"])
    bench.edit({"draft.id": OTHER.id})
    bench.models |= HUB_IS_DOWN
    bench.restart()
    await passes(bench, 120)
    assert bench.kube.names(DEPLOYMENT) == [before]
    degraded = bench.condition("Degraded")
    assert (degraded["status"], degraded["reason"]) == ("True", "KeptUnreadable")
    assert f"{key} of ConfigMap kimi-tuning cannot be read" in degraded["message"]
    assert bench.condition("Progressing")["reason"] == "KeptUnreadable"

    bench.edit({"replicas": 5})
    await passes(bench, 5)
    assert bench.kube.find(DEPLOYMENT, before)["spec"]["replicas"] == 5

    bench.models |= {TARGET: FITS, OTHER: FITS}
    bench.metrics.generation = 1
    if key != "models.json":
        # What serves could not be gone back to: somebody has to want that.
        await passes(bench, 60)
        assert bench.kube.names(DEPLOYMENT) == [before]
        assert bench.condition("Degraded")["reason"] == "StableSpecUnknown"
        assert await retried(bench.kube, KEY, bench.clock.at_s)
    await bench.until_rolled()
    assert bench.kube.names(DEPLOYMENT) != [before]
    assert bench.condition("Degraded")["reason"] == "AsExpected"


async def test_who_takes_the_junk_away_ends_the_waiting() -> None:
    bench = await serving()
    write(bench, "models.json", JUNK["deep"])
    bench.edit({"draft.id": OTHER.id})
    bench.models |= HUB_IS_DOWN
    bench.restart()
    await passes(bench, 60)
    assert bench.condition("Degraded")["reason"] == "KeptUnreadable"
    config_map = copy.deepcopy(bench.kube.find(CONFIG_MAP, "kimi-tuning"))
    del config_map["data"]["models.json"]
    bench.kube.put(CONFIG_MAP, config_map)
    await passes(bench, 60)
    assert len(bench.kube.names(DEPLOYMENT)) == 2


async def test_a_veto_survives_the_loss_of_the_rollout() -> None:
    bench, before, _ = await vetoed()
    write(bench, "rollout.json", JUNK["deep"])
    bench.restart()
    await passes(bench, 60)
    assert bench.condition("Degraded")["reason"] == "RolledBack"
    assert bench.kube.find(DEPLOYMENT, before)["spec"]["replicas"] == 3


def report(bench: Bench, **rollout: str) -> None:
    """In the status, as another Fathom would have."""
    resource = copy.deepcopy(bench.resource)
    resource["status"]["rollout"] |= rollout
    bench.kube.put(SPECULATIVE_DEPLOYMENT, resource)


async def vetoed() -> tuple[Bench, str, str]:
    """A fleet that has gone back to the first of two revisions."""
    bench = await serving()
    (before,) = bench.kube.names(DEPLOYMENT)
    bench.edit({"engine.image": "vllm/vllm-openai:v0.32.1"})
    await bench.tick()
    bench.clock.at_s += 11
    await passes(bench, 3)
    (canary,) = set(bench.kube.names(DEPLOYMENT)) - {before}
    for pod in bench.pods_of(canary):
        crashed = {"name": "vllm", "restartCount": 3, "state": {}}
        bench.set_ready(pod["metadata"]["name"], ready=False, containerStatuses=[crashed])
    await bench.tick()
    assert bench.status["rollout"]["stage"] == "RolledBack"
    await passes(bench, 5)
    return bench, before, canary


@pytest.mark.parametrize("kept_too", [True, False], ids=["kept", "in the status alone"])
async def test_a_veto_for_a_reason_of_a_later_fathom_stands(*, kept_too: bool) -> None:
    bench, before, canary = await vetoed()
    later = {**json.loads(kept(bench)["rollout.json"]), "reason": "CanaryHotter", "later": [1]}
    write(bench, "rollout.json", json.dumps(later) if kept_too else JUNK["deep"])
    report(bench, reason="CanaryHotter")
    bench.restart()
    await passes(bench, 60)
    assert len(events(bench, "StateReset")) == (0 if kept_too else 1)
    degraded = bench.condition("Degraded")
    assert degraded["reason"] == "RolledBack"
    assert later["message"] in degraded["message"]
    assert bench.kube.find(DEPLOYMENT, before)["spec"]["replicas"] == 3
    if canary in bench.kube.names(DEPLOYMENT):
        assert bench.kube.find(DEPLOYMENT, canary)["spec"]["replicas"] == 0


async def test_a_rollout_at_a_stage_of_a_later_fathom_begins_anew() -> None:
    bench, before, _ = await vetoed()
    later = {**json.loads(kept(bench)["rollout.json"]), "stage": "Halfway"}
    write(bench, "rollout.json", json.dumps(later))
    report(bench, stage="Halfway")
    bench.restart()
    await bench.tick()
    assert len(events(bench, "StateReset")) == 1
    # From what serves, and by one canary, as any other.
    assert bench.status["rollout"]["stage"] == "Settling"
    assert bench.kube.find(DEPLOYMENT, before)["spec"]["replicas"] == 3
    assert events(bench, "InternalError") == []


async def test_what_a_later_fathom_has_learnt_besides_is_told_and_costs_nothing() -> None:
    bench = await serving()
    later = {**json.loads(kept(bench)["state.json"]), "later": {"a": 1}, "generation": 7}
    watch = dict.fromkeys(("message", "recommendation"), "")
    seen = dict.fromkeys(("first_seen_s", "last_seen_s", "later"), 1.0)
    later["watches"] = [{"kind": "DraftTooWarm", "reason": "WarmerThanItWas", **watch, **seen}]
    write(bench, "state.json", json.dumps(later))
    bench.restart()
    await passes(bench, 70)
    (message,) = events(bench, "StateReset")
    assert message.startswith("parts of state.json of ConfigMap kimi-tuning cannot be read")
    assert json.loads(kept(bench)["state.json"])["generation"] >= 7


@pytest.mark.parametrize("began_at_s", ["1e308", "NaN", "Infinity", "-5", '"soon"', "9" * 400])
async def test_a_rollout_at_no_possible_time_is_none(began_at_s: str) -> None:
    bench = await serving()
    rollout = (
        '{"revision":"bbbbbbbb","stable":"aaaaaaaa","stage":"Promoted","reason":"CanaryAsGood",'
        f'"began_at_s":{began_at_s}}}'
    )
    write(bench, "rollout.json", rollout)
    bench.restart()
    await passes(bench, 3)
    assert events(bench, "InternalError") == []
    assert len(events(bench, "StateReset")) == 1


async def test_a_tuner_that_fails_on_what_it_learnt_begins_anew() -> None:
    bench = await serving()
    good = bench.decide
    bench.decide = lambda snapshot: 1 / 0 if snapshot.state.generation else good(snapshot)  # type: ignore[assignment,return-value]
    write(bench, "state.json", json.dumps({"generation": 7}))
    bench.restart()
    await passes(bench, 3)
    assert len(events(bench, "InternalError")) == 1
    assert bench.condition("Ready")["status"] == "True"
    assert await bench.tick() == 30
