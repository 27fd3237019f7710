"""Fleets with adaptive verification of the release in which depth was not live beside it.

`earlier/` holds what that release's operator wrote, as it wrote it.
"""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from fathom.adapters.ports import PodEndpoint, Sample
from fathom.core.cluster.kinds import CONFIG_MAP, DEPLOYMENT, EVENT, POD
from fathom.core.revision import revision_of
from manifest_samples import resource
from scenarios.test_arm import FLEET, Serving, compared, pass_minutes, pods_with_it, replicas
from support.bench import START_S, Bench

FIELD = "speculation.adaptiveVerification"
OF_EARLIER = "28057f8c"
"""The revision of pods with it, as that release called them: their depth is `tokens`."""


def upgraded(wish: str) -> Bench:
    """A fleet of three that the earlier release has brought up, as its successor meets it."""
    bench = Bench(FLEET | {FIELD: "Enabled" if wish == "Enabled" else "Disabled"})
    if wish == "Canary":
        bench.edit({FIELD: wish})
    bench.clock.at_s = START_S + 5 * 60
    written = Path(__file__).parent / "earlier" / f"adaptive_{wish.lower()}.json"
    kinds = {each.kind: each for each in (CONFIG_MAP, DEPLOYMENT)}
    for each in json.loads(written.read_text()):
        bench.kube.put(kinds[each["kind"]], each)
    bench.play_controllers()
    bench.metrics = Serving(bench, faster=0.05)
    bench.restart()
    return bench


@pytest.mark.parametrize(("wish", "of_each"), [("Enabled", (0, 3)), ("Canary", (2, 1))])
async def test_an_upgrade_rolls_none_of_their_pods(wish: str, of_each: tuple[int, int]) -> None:
    assert revision_of(resource(FLEET | {FIELD: "Enabled"})) != OF_EARLIER
    bench = upgraded(wish)
    pods = bench.kube.names(POD)
    assert replicas(bench) == of_each
    await pass_minutes(bench, 30)
    assert bench.kube.names(POD) == pods
    assert bench.kube.written("Deployment") == []
    assert bench.condition("Progressing")["status"] == "False"
    assert bench.condition("Degraded")["status"] == "False"


async def test_where_all_have_it_depth_stays_until_a_rollout_replaces_them() -> None:
    bench = upgraded("Enabled")
    await pass_minutes(bench, 5)
    engine = bench.status["engine"]
    assert engine["actuation"] == "None"
    assert "live once a rollout replaces them" in engine["reason"]
    bench.edit({"engine.image": "vllm/vllm-openai:v0.32.1"})
    await pass_minutes(bench, 5)
    (new,) = set(bench.kube.names(DEPLOYMENT)) - {f"kimi-{OF_EARLIER}"}
    (container,) = bench.kube.find(DEPLOYMENT, new)["spec"]["template"]["spec"]["containers"]
    assert "num_speculative_tokens_per_batch_size" in " ".join(container["args"])


async def test_their_depth_is_edited_by_a_rollout() -> None:
    """In pods that read no document nothing else has an effect."""
    bench = upgraded("Enabled")
    await pass_minutes(bench, 2)
    bench.edit({"speculation.tokens": 1})
    await pass_minutes(bench, 2)
    (told,) = (each for each in bench.kube.all_of(EVENT) if each["reason"] == "Rolling")
    assert told["message"].startswith("spec.speculation.tokens changed, which needs new pods")


async def test_what_is_deleted_comes_back_live() -> None:
    bench = upgraded("Enabled")
    await pass_minutes(bench, 2)
    bench.kube.remove(DEPLOYMENT, "llm", f"kimi-{OF_EARLIER}")
    for pod in bench.kube.names(POD):
        bench.kube.remove(POD, "llm", pod)
    await pass_minutes(bench, 4)
    assert bench.kube.names(DEPLOYMENT) == [f"kimi-{OF_EARLIER}"]
    assert bench.status["engine"]["actuation"] == "Live"


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
    bench = upgraded("Canary")
    bench.metrics = OneThatReadsNoDepths(bench, faster=0.05)
    await pass_minutes(bench, 25)
    found = compared(bench)
    assert (found["state"], found["revision"]) == ("Compared", OF_EARLIER)
    assert bench.status["engine"]["actuation"] == "Live"
