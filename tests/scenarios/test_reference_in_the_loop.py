"""What acceptance is held against, from pods and annotations to the condition, over restarts."""

import copy
import json
from typing import Any

import pytest

from fathom.api import names
from fathom.cluster.kinds import CONFIG_MAP, POD, SPECULATION_TUNER, SPECULATIVE_DEPLOYMENT
from fathom.engine.report import ServedPair
from fathom.tuning.interface import TuningDecision, TuningSnapshot
from support.loop_harness import LoopHarness, holding
from support.tuner_harness import TunerHarness

HALF_AN_HOUR_S = 1800.0
DAY_S = 24 * 3600.0
FITS = (0.81, 0.8, 0.75) + (0.7,) * 13
FALLEN = (0.41, 0.8, 0.75) + (0.7,) * 13
COMMIT = "0123456789abcdef0123456789abcdef01234567"
STATE = names.tuner_state_config_map("qwen")


def drafting(harness: TunerHarness, draft: str, *more: str) -> None:
    """All pods are made again, with this draft."""
    config = {"model": draft, "revision": COMMIT, "method": "eagle3", "num_speculative_tokens": 3}
    args = ["org/target", "--revision", COMMIT, "--speculative-config", json.dumps(config), *more]
    for name in harness.engines:
        pod = copy.deepcopy(harness.kube.find(POD, name))
        pod["spec"]["containers"] = [{"name": "main", "image": "vllm:1", "args": args}]
        harness.kube.put(POD, pod)


def harness_of_days() -> TunerHarness:
    harness = TunerHarness({"tuning": {"mode": "Auto", "windowSeconds": 600}}, pods=1)
    harness.tick_s, harness.concurrency, harness.acceptance = HALF_AN_HOUR_S, 2, FITS
    drafting(harness, "org/draft")
    return harness


async def pass_days(harness: TunerHarness, days: float) -> None:
    for _ in range(round(days * DAY_S / HALF_AN_HOUR_S)):
        harness.serve(HALF_AN_HOUR_S)
        await harness.tick()


async def fallen_for_a_day() -> TunerHarness:
    """With a restart of the operator half-way."""
    harness = harness_of_days()
    await pass_days(harness, 1.1)
    harness.acceptance = FALLEN
    await pass_days(harness, 0.5)
    harness.restart()
    await pass_days(harness, 0.5)
    return harness


def mismatch(harness: TunerHarness) -> tuple[str, str]:
    found = harness.condition("DraftMismatch")
    return found["status"], found["reason"]


def told(harness: TunerHarness) -> list[tuple[str, str]]:
    """Events of the alarm, each with the first words of its message."""
    return [
        (each.body["reason"], " ".join(each.body["message"].split()[:3]))
        for each in harness.kube.written("Event")
        if each.body["reason"].startswith("DraftMismatch")
    ]


def annotate(harness: TunerHarness, value: str) -> None:
    document = copy.deepcopy(harness.resource)
    document["metadata"]["annotations"] = {names.ANNOTATION_NEW_REFERENCE: value}
    harness.kube.put(SPECULATION_TUNER, document)


def ratio(harness: TunerHarness) -> float | None:
    labels = {"resource": names.TUNER_KIND, "namespace": "llm", "name": "qwen"}
    registry = harness.loop._world.telemetry.registry
    return registry.get_sample_value("fathom_acceptance_of_reference", labels)


async def test_what_no_longer_fits_is_told_twice_and_stands_over_a_restart() -> None:
    harness = await fallen_for_a_day()
    assert mismatch(harness) == ("True", "AcceptanceBelowReference")
    assert "target and draft are the same commits" in harness.condition("DraftMismatch")["message"]
    assert told(harness) == [
        ("DraftMismatch", "The first draft"),
        ("DraftMismatch", f"Since {harness.condition('DraftMismatch')['message'].split()[1]} the"),
    ]
    found = ratio(harness)
    assert found is not None
    assert found < 0.9


async def test_a_person_ends_it_and_a_restart_does_not_bring_it_back() -> None:
    harness = await fallen_for_a_day()
    annotate(harness, "1")
    await pass_days(harness, 0.1)
    assert mismatch(harness) == ("False", "Cleared")
    assert ratio(harness) is None
    harness.restart()
    await pass_days(harness, 0.5)
    assert mismatch(harness) == ("False", "Cleared")


async def test_another_draft_ends_it() -> None:
    harness = await fallen_for_a_day()
    drafting(harness, "org/another")
    await pass_days(harness, 0.1)
    assert mismatch(harness) == ("False", "Cleared")


async def test_other_arguments_of_the_engine_do_not() -> None:
    harness = await fallen_for_a_day()
    drafting(harness, "org/draft", "--kv-cache-dtype", "fp8")
    await pass_days(harness, 0.1)
    assert mismatch(harness) == ("True", "AcceptanceBelowReference")
    assert "image and arguments have changed" in harness.condition("DraftMismatch")["message"]


async def test_what_an_earlier_release_kept_has_no_reference_and_gets_one() -> None:
    harness = harness_of_days()
    await pass_days(harness, 0.2)
    found = copy.deepcopy(harness.kube.find(CONFIG_MAP, STATE))
    kept = json.loads(found["data"]["state.json"])
    assert kept.pop("reference")["began_at_s"] > 0
    found["data"]["state.json"] = json.dumps(kept)
    harness.kube.put(CONFIG_MAP, found)
    restarted_s = harness.clock.at_s
    harness.restart()
    await pass_days(harness, 0.2)
    state = harness.loop.state
    assert state is not None
    assert state.tuner.reference is not None
    assert state.tuner.reference.began_at_s >= restarted_s
    assert state.tuner.acceptance.known_s > 0.25 * DAY_S


# A SpeculativeDeployment's own pods


class Seen:
    """What the tuner is told of what pods serve."""

    def __init__(self, harness: LoopHarness) -> None:
        self.pair: ServedPair | None = None
        self.new_reference = ""
        harness.decide = self._decide

    def _decide(self, snapshot: TuningSnapshot) -> TuningDecision:
        self.pair, self.new_reference = snapshot.pair, snapshot.new_reference
        return holding(snapshot)


@pytest.mark.parametrize(
    ("changes", "same"),
    [
        ({"replicas": 3}, True),
        ({"speculation.tuning": {"mode": "Advise"}}, True),
        ({"engine.args": ["--max-num-seqs", "32"]}, True),
        ({"draft.id": "org/another"}, False),
        ({"draft.revision": COMMIT}, False),
        ({"model.revision": COMMIT}, False),
    ],
    ids=["replicas", "tuning", "arguments", "draft", "its revision", "the target's revision"],
)
async def test_an_edit_is_of_another_pair_where_models_change(
    changes: dict[str, Any], *, same: bool
) -> None:
    harness = LoopHarness()
    seen = Seen(harness)
    await harness.until_ready()
    before = seen.pair
    assert before is not None
    harness.edit(changes)
    await harness.until_rolled()
    await harness.run_for(120)
    assert seen.pair is not None
    assert seen.pair.has_models_of(before) is same
    assert (seen.pair.engine == before.engine) is (same and "engine.args" not in changes)


async def test_a_person_may_ask_by_an_annotation(harness: LoopHarness) -> None:
    seen = Seen(harness)
    await harness.until_ready()
    assert seen.new_reference == ""
    document = copy.deepcopy(harness.resource)
    document["metadata"]["annotations"] = {names.ANNOTATION_NEW_REFERENCE: " 2027-01 "}
    harness.kube.put(SPECULATIVE_DEPLOYMENT, document)
    harness.loop.wake()
    await harness.tick()
    assert seen.new_reference == "2027-01"
