"""A resource that a person has paused by annotation."""

import copy
from typing import Any

from fathom.api import names
from fathom.core.cluster.kinds import DEPLOYMENT, EVENT, SPECULATIVE_DEPLOYMENT
from support.bench import Bench

SENTENCE = "annotation fathom.dev/paused holds depth, rollouts and refreshes: incident 42."


def annotated(bench: Bench, value: str | None) -> None:
    """As `kubectl annotate` would."""
    document: dict[str, Any] = copy.deepcopy(bench.resource)
    annotations = document["metadata"].setdefault("annotations", {})
    if value is None:
        annotations.pop(names.ANNOTATION_PAUSED)
    else:
        annotations[names.ANNOTATION_PAUSED] = value
    bench.kube.put(SPECULATIVE_DEPLOYMENT, document)


def events(bench: Bench) -> list[str]:
    return [each["reason"] for each in bench.kube.all_of(EVENT)]


def asked(bench: Bench) -> dict[str, int]:
    return {each["metadata"]["name"]: each["spec"]["replicas"] for each in _deployments(bench)}


def _deployments(bench: Bench) -> list[dict[str, Any]]:
    return bench.kube.all_of(DEPLOYMENT)


async def test_it_says_so_where_people_look(bench: Bench) -> None:
    generation = bench.resource["metadata"]["generation"]
    annotated(bench, "incident 42")
    await bench.tick()

    progressing = bench.condition("Progressing")
    assert bench.status["reason"] == "Paused"
    assert (progressing["status"], progressing["reason"]) == ("False", "Paused")
    assert progressing["message"].startswith(f"{SENTENCE} Meanwhile: every replica is of revision")
    assert events(bench).count("Paused") == 1
    # Nothing of the user's was written: whatever syncs the spec finds it as it was.
    assert bench.resource["metadata"]["generation"] == generation


async def test_a_rollout_waits_and_an_operator_that_is_restarted_knows(bench: Bench) -> None:
    before = asked(bench)
    annotated(bench, "true")
    await bench.tick()
    bench.edit({"engine.image": "vllm/vllm-openai:v0.33.0"})
    for _ in range(3):
        bench.restart()
        await bench.run_for(60)
        bench.play_controllers()
    assert asked(bench) == before
    assert bench.status["reason"] == "Paused"

    bench.edit({"replicas": 3})
    await bench.until_ready()
    assert sum(asked(bench).values()) == 3

    annotated(bench, None)
    for _ in range(4):
        bench.clock.at_s += await bench.tick() or 0
        bench.play_controllers()
    assert bench.status["rollout"]["stage"] == "Canary"
    assert len(asked(bench)) == len(before) + 1
    assert events(bench).count("Resumed") == 1


async def test_what_is_wrong_is_said_first_all_the_same(bench: Bench) -> None:
    annotated(bench, "incident 42")
    bench.edit({"speculation.tokens": 99})
    await bench.tick()

    assert bench.status["reason"] == "InvalidSpec"
    assert bench.condition("Progressing")["reason"] == "Paused"


async def rolling(minutes: int) -> Bench:
    """Three replicas, and a rollout whose canary has just become ready."""
    bench = Bench({"replicas": 3, "rollout.canaryMinutes": minutes})
    await bench.until_ready()
    bench.metrics.generation = 1
    bench.edit({"engine.image": "vllm/vllm-openai:v0.33.0"})
    for _ in range(5):
        bench.clock.at_s += await bench.tick() or 0
        bench.play_controllers()
    return bench


async def passes(bench: Bench, count: int) -> None:
    for _ in range(count):
        bench.clock.at_s += await bench.tick() or 0
        bench.play_controllers()


async def test_a_canary_is_neither_promoted_nor_given_up_meanwhile() -> None:
    bench = await rolling(minutes=10)
    annotated(bench, "true")
    await passes(bench, 60)
    assert bench.status["rollout"]["stage"] == "Canary"

    annotated(bench, None)
    await passes(bench, 60)
    assert bench.status["rollout"]["stage"] == "Complete"


async def test_one_that_was_promoted_goes_no_further() -> None:
    bench = await rolling(minutes=0)
    while bench.status["rollout"]["stage"] != "Promoted":
        await bench.tick()
    annotated(bench, "true")
    # A replica that made room for the next step comes back.
    await passes(bench, 1)
    before = asked(bench)
    assert sorted(before.values()) == [1, 2]
    await passes(bench, 10)

    assert asked(bench) == before
    message = bench.condition("Progressing")["message"]
    assert "Meanwhile: a pause holds the rollout to revision" in message
