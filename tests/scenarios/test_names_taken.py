"""What exists without belonging to the resource is never touched, whatever it is called."""

import copy
from typing import Any

import pytest

from fathom.core.cluster.kinds import (
    CONFIG_MAP,
    DEPLOYMENT,
    PERSISTENT_VOLUME_CLAIM,
    POD,
    SERVICE,
    SERVICE_ACCOUNT,
    SPECULATIVE_DEPLOYMENT,
    Kind,
)
from support.bench import Bench

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
    bench = Bench()
    bench.kube.put(kind, foreign(kind, name, labels=labels))
    before = copy.deepcopy(bench.kube.find(kind, name))
    await bench.run_for(300)

    assert bench.kube.find(kind, name) == before
    assert bench.kube.names(DEPLOYMENT) == []
    degraded = bench.condition("Degraded")
    assert degraded["reason"] == "NameTaken"
    assert f"{kind.kind} {name} exists and does not belong to this resource" in degraded["message"]
    assert "nothing is started" in degraded["message"]

    bench.kube.writes.clear()
    await bench.run_for(120)
    assert bench.kube.writes == []  # and quiet about it

    bench.kube.remove(kind, "llm", name)
    await bench.run_for(90)
    await bench.until_ready()
    assert bench.condition("Degraded")["reason"] == "AsExpected"
    assert bench.status["ready"] == "1/1"


async def test_a_claim_of_somebody_elses_holds_no_weights_of_ours() -> None:
    bench = Bench({"cache.size": "1Ti"})
    claim = foreign(PERSISTENT_VOLUME_CLAIM, "kimi-cache")
    bench.kube.put(PERSISTENT_VOLUME_CLAIM, claim)
    before = copy.deepcopy(bench.kube.find(PERSISTENT_VOLUME_CLAIM, "kimi-cache"))
    await bench.run_for(120)
    assert bench.condition("Degraded")["reason"] == "NameTaken"
    assert bench.kube.find(PERSISTENT_VOLUME_CLAIM, "kimi-cache") == before


async def test_a_taken_workload_name_costs_no_replica_that_serves() -> None:
    bench = Bench({"replicas": 2})
    await bench.until_ready()
    (stable,) = bench.kube.names(DEPLOYMENT)
    other = Bench({"replicas": 2, "draft.revision": "v2"})
    await other.until_ready()
    (wanted,) = other.kube.names(DEPLOYMENT)
    taken = foreign(DEPLOYMENT, wanted, labels=LABELS)
    taken["spec"] = {"replicas": 0, "template": {"metadata": {}, "spec": {}}}
    bench.kube.put(DEPLOYMENT, taken)

    bench.edit({"draft.revision": "v2"})
    for _ in range(60):
        bench.clock.at_s += await bench.tick() or 0
        bench.play_controllers()
        assert bench.kube.find(DEPLOYMENT, stable)["spec"]["replicas"] == 2

    assert bench.condition("Degraded")["reason"] == "NameTaken"
    assert "what runs keeps running" in bench.condition("Degraded")["message"]
    assert bench.kube.find(DEPLOYMENT, wanted)["spec"] == taken["spec"]

    bench.kube.remove(DEPLOYMENT, "llm", wanted)
    bench.metrics.generation = 1
    await bench.until_rolled()
    assert bench.kube.names(DEPLOYMENT) == [wanted]


async def test_pods_of_somebody_elses_are_neither_counted_nor_touched(bench: Bench) -> None:
    own = bench.kube.find(POD, bench.kube.names(POD)[0])
    stranger = copy.deepcopy(own)
    stranger["metadata"] |= {"name": "stranger", "uid": "uid-of-a-stranger"}
    stranger["metadata"].pop("ownerReferences")
    bench.kube.put(POD, stranger)
    before = copy.deepcopy(bench.kube.find(POD, "stranger"))
    bench.edit({"replicas": 3})
    await bench.tick()
    assert bench.status["ready"] == "2/3"
    assert "stranger" not in bench.metrics.asked
    assert bench.kube.find(POD, "stranger") == before


async def test_what_lost_its_label_is_ours_all_the_same(bench: Bench) -> None:
    service = copy.deepcopy(bench.kube.find(SERVICE, "kimi"))
    service["metadata"]["labels"] = {}
    bench.kube.put(SERVICE, service)
    await bench.tick()
    await bench.until_ready()
    found = bench.kube.find(SERVICE, "kimi")["metadata"]
    assert found["labels"]["fathom.dev/name"] == "kimi"
    assert found["uid"] == service["metadata"]["uid"]
    assert bench.condition("Degraded")["reason"] == "AsExpected"


async def test_the_estate_of_an_earlier_resource_is_waited_for(bench: Bench) -> None:
    resource = bench.resource
    resource["metadata"]["uid"] = "uid-of-the-next"
    resource.pop("status")
    bench.kube.put(SPECULATIVE_DEPLOYMENT, resource)
    left = bench.kube.all_of(SERVICE) + bench.kube.all_of(SERVICE_ACCOUNT)
    before = copy.deepcopy(left)
    bench.loop.wake()
    await bench.run_for(60)
    assert bench.kube.all_of(SERVICE) + bench.kube.all_of(SERVICE_ACCOUNT) == before
    assert "goes by itself" in bench.condition("Degraded")["message"]

    for kind in (SERVICE, SERVICE_ACCOUNT, CONFIG_MAP, DEPLOYMENT, POD):
        for name in bench.kube.names(kind):
            bench.kube.remove(kind, "llm", name)
    await bench.run_for(20)  # sooner than the minute
    assert bench.kube.names(SERVICE) == ["kimi"]
    await bench.until_ready()
    assert bench.condition("Degraded")["reason"] == "AsExpected"
