"""What exists without belonging to the resource is never touched, whatever it is called."""

import copy
from typing import Any

import pytest

from fathom.cluster.kinds import (
    CONFIG_MAP,
    DEPLOYMENT,
    PERSISTENT_VOLUME_CLAIM,
    POD,
    SERVICE,
    SERVICE_ACCOUNT,
    SPECULATIVE_DEPLOYMENT,
    Kind,
)
from support.loop_harness import LoopHarness

LABELS = {"fathom.dev/name": "kimi", "app.kubernetes.io/managed-by": "fathom"}


def foreign(kind: Kind, name: str, **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {"name": name, "namespace": "llm", **metadata},
    }


@pytest.mark.parametrize("labels", [{}, LABELS])
@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (SERVICE, "kimi"),
        (SERVICE_ACCOUNT, "kimi"),
        (CONFIG_MAP, "kimi-depth"),
        (CONFIG_MAP, "kimi-tuning"),
        (CONFIG_MAP, "kimi-plugin-aaaaaaaaaa"),
    ],
)
async def test_what_is_not_ours_is_left_alone_until_it_goes(
    kind: Kind, name: str, labels: dict[str, str]
) -> None:
    harness = LoopHarness()
    harness.kube.put(kind, foreign(kind, name, labels=labels))
    before = copy.deepcopy(harness.kube.find(kind, name))
    await harness.run_for(300)

    assert harness.kube.find(kind, name) == before
    assert harness.kube.names(DEPLOYMENT) == []
    degraded = harness.condition("Degraded")
    assert degraded["reason"] == "NameTaken"
    assert f"{kind.kind} {name} exists and does not belong to this resource" in degraded["message"]
    assert "nothing is started" in degraded["message"]

    harness.kube.writes.clear()
    await harness.run_for(120)
    assert harness.kube.writes == []  # and quiet about it

    harness.kube.remove(kind, "llm", name)
    await harness.run_for(90)
    await harness.until_ready()
    assert harness.condition("Degraded")["reason"] == "AsExpected"
    assert harness.status["ready"] == "1/1"


async def test_a_claim_of_somebody_elses_holds_no_weights_of_ours() -> None:
    harness = LoopHarness({"cache.size": "1Ti"})
    claim = foreign(PERSISTENT_VOLUME_CLAIM, "kimi-cache")
    harness.kube.put(PERSISTENT_VOLUME_CLAIM, claim)
    before = copy.deepcopy(harness.kube.find(PERSISTENT_VOLUME_CLAIM, "kimi-cache"))
    await harness.run_for(120)
    assert harness.condition("Degraded")["reason"] == "NameTaken"
    assert harness.kube.find(PERSISTENT_VOLUME_CLAIM, "kimi-cache") == before


async def test_a_taken_workload_name_costs_no_replica_that_serves() -> None:
    harness = LoopHarness({"replicas": 2})
    await harness.until_ready()
    (stable,) = harness.kube.names(DEPLOYMENT)
    other = LoopHarness({"replicas": 2, "draft.revision": "v2"})
    await other.until_ready()
    (wanted,) = other.kube.names(DEPLOYMENT)
    taken = foreign(DEPLOYMENT, wanted, labels=LABELS)
    taken["spec"] = {"replicas": 0, "template": {"metadata": {}, "spec": {}}}
    harness.kube.put(DEPLOYMENT, taken)

    harness.edit({"draft.revision": "v2"})
    for _ in range(60):
        harness.clock.at_s += await harness.tick() or 0
        harness.play_controllers()
        assert harness.kube.find(DEPLOYMENT, stable)["spec"]["replicas"] == 2

    assert harness.condition("Degraded")["reason"] == "NameTaken"
    assert "what runs keeps running" in harness.condition("Degraded")["message"]
    assert harness.kube.find(DEPLOYMENT, wanted)["spec"] == taken["spec"]

    harness.kube.remove(DEPLOYMENT, "llm", wanted)
    harness.metrics.generation = 1
    await harness.until_rolled()
    assert harness.kube.names(DEPLOYMENT) == [wanted]


async def test_pods_of_somebody_elses_are_neither_counted_nor_touched(harness: LoopHarness) -> None:
    own = harness.kube.find(POD, harness.kube.names(POD)[0])
    stranger = copy.deepcopy(own)
    stranger["metadata"] |= {"name": "stranger", "uid": "uid-of-a-stranger"}
    stranger["metadata"].pop("ownerReferences")
    harness.kube.put(POD, stranger)
    before = copy.deepcopy(harness.kube.find(POD, "stranger"))
    harness.edit({"replicas": 3})
    await harness.tick()
    assert harness.status["ready"] == "2/3"
    assert "stranger" not in harness.metrics.asked
    assert harness.kube.find(POD, "stranger") == before


async def test_what_lost_its_label_is_ours_all_the_same(harness: LoopHarness) -> None:
    service = copy.deepcopy(harness.kube.find(SERVICE, "kimi"))
    service["metadata"]["labels"] = {}
    harness.kube.put(SERVICE, service)
    await harness.tick()
    await harness.until_ready()
    found = harness.kube.find(SERVICE, "kimi")["metadata"]
    assert found["labels"]["fathom.dev/name"] == "kimi"
    assert found["uid"] == service["metadata"]["uid"]
    assert harness.condition("Degraded")["reason"] == "AsExpected"


async def test_the_estate_of_an_earlier_resource_is_waited_for(harness: LoopHarness) -> None:
    resource = harness.resource
    resource["metadata"]["uid"] = "uid-of-the-next"
    resource.pop("status")
    harness.kube.put(SPECULATIVE_DEPLOYMENT, resource)
    left = harness.kube.all_of(SERVICE) + harness.kube.all_of(SERVICE_ACCOUNT)
    before = copy.deepcopy(left)
    harness.loop.wake()
    await harness.run_for(60)
    assert harness.kube.all_of(SERVICE) + harness.kube.all_of(SERVICE_ACCOUNT) == before
    assert "goes by itself" in harness.condition("Degraded")["message"]

    for kind in (SERVICE, SERVICE_ACCOUNT, CONFIG_MAP, DEPLOYMENT, POD):
        for name in harness.kube.names(kind):
            harness.kube.remove(kind, "llm", name)
    await harness.run_for(20)  # sooner than the minute
    assert harness.kube.names(SERVICE) == ["kimi"]
    await harness.until_ready()
    assert harness.condition("Degraded")["reason"] == "AsExpected"
