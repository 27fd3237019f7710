"""A resource that a person has paused by annotation."""

import copy
from typing import Any

from fathom.api import names
from fathom.cluster.kinds import DEPLOYMENT, EVENT, SPECULATIVE_DEPLOYMENT
from support.loop_harness import LoopHarness

SENTENCE = "annotation fathom.dev/paused holds depth, rollouts and refreshes: incident 42."


def annotated(harness: LoopHarness, value: str | None) -> None:
    """As `kubectl annotate` would."""
    document: dict[str, Any] = copy.deepcopy(harness.resource)
    annotations = document["metadata"].setdefault("annotations", {})
    if value is None:
        annotations.pop(names.ANNOTATION_PAUSED)
    else:
        annotations[names.ANNOTATION_PAUSED] = value
    harness.kube.put(SPECULATIVE_DEPLOYMENT, document)


def events(harness: LoopHarness) -> list[str]:
    return [each["reason"] for each in harness.kube.all_of(EVENT)]


def asked(harness: LoopHarness) -> dict[str, int]:
    return {each["metadata"]["name"]: each["spec"]["replicas"] for each in _deployments(harness)}


def _deployments(harness: LoopHarness) -> list[dict[str, Any]]:
    return harness.kube.all_of(DEPLOYMENT)


async def test_it_says_so_where_people_look(harness: LoopHarness) -> None:
    generation = harness.resource["metadata"]["generation"]
    annotated(harness, "incident 42")
    await harness.tick()

    progressing = harness.condition("Progressing")
    assert harness.status["reason"] == "Paused"
    assert (progressing["status"], progressing["reason"]) == ("False", "Paused")
    assert progressing["message"].startswith(f"{SENTENCE} Meanwhile: every replica is of revision")
    assert events(harness).count("Paused") == 1
    # Nothing of the user's was written: whatever syncs the spec finds it as it was.
    assert harness.resource["metadata"]["generation"] == generation


async def test_a_rollout_waits_and_an_operator_that_is_restarted_knows(
    harness: LoopHarness,
) -> None:
    before = asked(harness)
    annotated(harness, "true")
    await harness.tick()
    harness.edit({"engine.image": "vllm/vllm-openai:v0.33.0"})
    for _ in range(3):
        harness.restart()
        await harness.run_for(60)
        harness.play_controllers()
    assert asked(harness) == before
    assert harness.status["reason"] == "Paused"

    harness.edit({"replicas": 3})
    await harness.until_ready()
    assert sum(asked(harness).values()) == 3

    annotated(harness, None)
    for _ in range(4):
        harness.clock.at_s += await harness.tick() or 0
        harness.play_controllers()
    assert harness.status["rollout"]["stage"] == "Canary"
    assert len(asked(harness)) == len(before) + 1
    assert events(harness).count("Resumed") == 1


async def test_what_is_wrong_is_said_first_all_the_same(harness: LoopHarness) -> None:
    annotated(harness, "incident 42")
    harness.edit({"speculation.tokens": 99})
    await harness.tick()

    assert harness.status["reason"] == "InvalidSpec"
    assert harness.condition("Progressing")["reason"] == "Paused"


async def rolling(minutes: int) -> LoopHarness:
    """Three replicas, and a rollout whose canary has just become ready."""
    harness = LoopHarness({"replicas": 3, "rollout.canaryMinutes": minutes})
    await harness.until_ready()
    harness.metrics.generation = 1
    harness.edit({"engine.image": "vllm/vllm-openai:v0.33.0"})
    for _ in range(5):
        harness.clock.at_s += await harness.tick() or 0
        harness.play_controllers()
    return harness


async def passes(harness: LoopHarness, count: int) -> None:
    for _ in range(count):
        harness.clock.at_s += await harness.tick() or 0
        harness.play_controllers()


async def test_a_canary_is_neither_promoted_nor_given_up_meanwhile() -> None:
    harness = await rolling(minutes=10)
    annotated(harness, "true")
    await passes(harness, 60)
    assert harness.status["rollout"]["stage"] == "Canary"

    annotated(harness, None)
    await passes(harness, 60)
    assert harness.status["rollout"]["stage"] == "Complete"


async def test_one_that_was_promoted_goes_no_further() -> None:
    harness = await rolling(minutes=0)
    while harness.status["rollout"]["stage"] != "Promoted":
        await harness.tick()
    annotated(harness, "true")
    # A replica that made room for the next step comes back.
    await passes(harness, 1)
    before = asked(harness)
    assert sorted(before.values()) == [1, 2]
    await passes(harness, 10)

    assert asked(harness) == before
    message = harness.condition("Progressing")["message"]
    assert "Meanwhile: a pause holds the rollout to revision" in message
