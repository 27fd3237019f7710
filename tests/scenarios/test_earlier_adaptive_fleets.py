"""Fleets with adaptive verification of the release in which depth was not live beside it.

`earlier/` holds what that release's operator wrote, as it wrote it.
"""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from fathom.adapters.ports import PodEndpoint, Sample
from fathom.cluster.kinds import CONFIG_MAP, DEPLOYMENT, EVENT, POD
from fathom.rollout.revision import revision_of
from manifest_samples import resource
from scenarios.test_arm import FLEET, Serving, compared, pass_minutes, pods_with_it, replicas
from support.loop_harness import START_S, LoopHarness

FIELD = "speculation.adaptiveVerification"
OF_EARLIER = "28057f8c"
"""The revision of pods with it, as that release called them: their depth is `tokens`."""


def upgraded(wish: str) -> LoopHarness:
    """A fleet of three that the earlier release has brought up, as its successor meets it."""
    harness = LoopHarness(FLEET | {FIELD: "Enabled" if wish == "Enabled" else "Disabled"})
    if wish == "Canary":
        harness.edit({FIELD: wish})
    harness.clock.at_s = START_S + 5 * 60
    written = Path(__file__).parent / "earlier" / f"adaptive_{wish.lower()}.json"
    kinds = {each.kind: each for each in (CONFIG_MAP, DEPLOYMENT)}
    for each in json.loads(written.read_text()):
        harness.kube.put(kinds[each["kind"]], each)
    harness.play_controllers()
    harness.metrics = Serving(harness, faster=0.05)
    harness.restart()
    return harness


@pytest.mark.parametrize(("wish", "of_each"), [("Enabled", (0, 3)), ("Canary", (2, 1))])
async def test_an_upgrade_rolls_none_of_their_pods(wish: str, of_each: tuple[int, int]) -> None:
    assert revision_of(resource(FLEET | {FIELD: "Enabled"})) != OF_EARLIER
    harness = upgraded(wish)
    pods = harness.kube.names(POD)
    assert replicas(harness) == of_each
    await pass_minutes(harness, 30)
    assert harness.kube.names(POD) == pods
    assert harness.kube.written("Deployment") == []
    assert harness.condition("Progressing")["status"] == "False"
    assert harness.condition("Degraded")["status"] == "False"


async def test_where_all_have_it_depth_stays_until_a_rollout_replaces_them() -> None:
    harness = upgraded("Enabled")
    await pass_minutes(harness, 5)
    engine = harness.status["engine"]
    assert engine["actuation"] == "None"
    assert "live once a rollout replaces them" in engine["reason"]
    harness.edit({"engine.image": "vllm/vllm-openai:v0.32.1"})
    await pass_minutes(harness, 5)
    (new,) = set(harness.kube.names(DEPLOYMENT)) - {f"kimi-{OF_EARLIER}"}
    (container,) = harness.kube.find(DEPLOYMENT, new)["spec"]["template"]["spec"]["containers"]
    assert "num_speculative_tokens_per_batch_size" in " ".join(container["args"])


async def test_their_depth_is_edited_by_a_rollout() -> None:
    """In pods that read no document nothing else has an effect."""
    harness = upgraded("Enabled")
    await pass_minutes(harness, 2)
    harness.edit({"speculation.tokens": 1})
    await pass_minutes(harness, 2)
    (told,) = (each for each in harness.kube.all_of(EVENT) if each["reason"] == "Rolling")
    assert told["message"].startswith("spec.speculation.tokens changed, which needs new pods")


async def test_what_is_deleted_comes_back_live() -> None:
    harness = upgraded("Enabled")
    await pass_minutes(harness, 2)
    harness.kube.remove(DEPLOYMENT, "llm", f"kimi-{OF_EARLIER}")
    for pod in harness.kube.names(POD):
        harness.kube.remove(POD, "llm", pod)
    await pass_minutes(harness, 4)
    assert harness.kube.names(DEPLOYMENT) == [f"kimi-{OF_EARLIER}"]
    assert harness.status["engine"]["actuation"] == "Live"


class OneThatReadsNoDepths(Serving):
    """The one replica with adaptive verification has no document to report."""

    async def sample(self, pods: Sequence[PodEndpoint]) -> Sample:
        found = await super().sample(pods)
        with_it = pods_with_it(self._bench)
        return Sample(
            tuple(
                replace(each, live_depth=False, depth_generation=0) if each.pod in with_it else each
                for each in found.counters
            )
        )


async def test_the_one_replica_goes_on_being_compared() -> None:
    harness = upgraded("Canary")
    harness.metrics = OneThatReadsNoDepths(harness, faster=0.05)
    await pass_minutes(harness, 25)
    found = compared(harness)
    assert (found["state"], found["revision"]) == ("Compared", OF_EARLIER)
    assert harness.status["engine"]["actuation"] == "Live"
