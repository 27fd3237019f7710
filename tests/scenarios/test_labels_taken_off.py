"""A user takes our labels off a workload: it is not listed any more, and still counts."""

import copy
from typing import Any

from fathom.api import names
from fathom.cluster.kinds import DEPLOYMENT
from support.loop_harness import LoopHarness


def asked(harness: LoopHarness) -> int:
    return sum(each["spec"]["replicas"] for each in harness.kube.all_of(DEPLOYMENT))


def without_labels(harness: LoopHarness, name: str) -> dict[str, Any]:
    """As a person or a tool does it to one Deployment; its pods have theirs."""
    found = copy.deepcopy(harness.kube.find(DEPLOYMENT, name))
    for label in (names.LABEL_NAME, names.LABEL_MANAGED_BY):
        del found["metadata"]["labels"][label]
    harness.kube.put(DEPLOYMENT, found)
    return found


async def test_what_serves_counts_in_a_rollout_without_its_label(harness: LoopHarness) -> None:
    (stable,) = harness.kube.names(DEPLOYMENT)
    harness.edit({"engine.image": "vllm/vllm-openai:v0.32.1"})
    await harness.tick()
    without_labels(harness, stable)
    most = 0
    for _ in range(200):
        harness.clock.at_s += await harness.tick() or 0
        most = max(most, asked(harness))
        harness.play_controllers()
    assert most <= 3
    (new,) = harness.kube.names(DEPLOYMENT)
    assert new != stable
    assert asked(harness) == 2


async def test_at_rest_it_is_labelled_again(harness: LoopHarness) -> None:
    (stable,) = harness.kube.names(DEPLOYMENT)
    without_labels(harness, stable)
    await harness.run_for(120)
    labels = harness.kube.find(DEPLOYMENT, stable)["metadata"]["labels"]
    assert labels[names.LABEL_NAME] == "kimi"
    assert harness.kube.names(DEPLOYMENT) == [stable]
