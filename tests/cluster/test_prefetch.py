"""Weights fetched into a claim on a real control plane, from a server that answers like a hub."""

from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from local_cluster.kube import Object
from support.hub_server import COMMIT, HubServer, Repository, serving
from support.local_cluster import TestNamespace
from support.operated import SPEC, Resource, operator, resource
from support.waiting import until

__all__ = ["operator", "resource"]

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("operator")]

ONE, TWO = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
SIZES = {ONE: 3_000_000, TWO: 40_000_000}
HELD_BYTES = 22_000_000
"""The client writes ten million bytes at a time."""


@pytest.fixture
async def hub(namespace: TestNamespace) -> AsyncIterator[HubServer]:
    """Where pods can reach it; of the second file it sends a part, until it is released."""
    weights = {name: b"w" * size for name, size in SIZES.items()}
    target = Repository({"config.json": b"{}", **weights})
    draft = Repository({"config.json": b"{ }", "model.safetensors": b"d" * 1000})
    gateway = str(namespace.cluster.state.network.gateway)
    repositories = {"org/target": target, "org/draft": draft}
    async with serving(HubServer(repositories, held={TWO: HELD_BYTES}), gateway) as hub:
        yield hub
        hub.released.set()


def spec(hub: HubServer, cache: Mapping[str, Any], **changes: Any) -> dict[str, Any]:
    engine = {**SPEC["engine"], "env": [{"name": "HF_ENDPOINT", "value": hub.endpoint}]}
    models = {"model": {"id": "org/target"}, "draft": {"id": "org/draft"}}
    return {**SPEC, **models, "replicas": 1, "engine": engine, "cache": cache, **changes}


async def test_weights_are_fetched_once_whatever_is_killed_and_pods_wait_for_them(
    namespace: TestNamespace, resource: Resource, hub: HubServer
) -> None:
    await resource.apply(spec(hub, {"size": "1Gi"}))
    progressing = await resource.wait("Progressing", "True", "FetchingWeights")
    assert "claim sd-cache" in progressing["message"]

    async def half_way() -> Object | None:
        weights: Object = (await resource.get())["status"].get("weights", {})
        return weights if weights.get("percent", 0) >= 50 else None

    shown = await until(half_way, "the status shows more than half of the bytes")
    assert shown["percent"] < 100
    assert " of 41 MiB" in shown["summary"]
    assert await namespace.all_of("Deployment") == []

    (pod,) = await fetching(namespace)
    await namespace.delete("Pod", pod["metadata"]["name"], gracePeriodSeconds=0)
    hub.released.set()
    await resource.wait("Ready", "True")
    assert hub.sent_bytes[ONE] == SIZES[ONE]
    weights = (await resource.get())["status"]["weights"]
    assert weights["models"] == [
        {"id": "org/target", "commit": COMMIT},
        {"id": "org/draft", "commit": COMMIT},
    ]
    (serving_pod,) = [pod for pod in await namespace.all_of("Pod") if leads(pod)]
    (container,) = serving_pod["spec"]["containers"]
    assert COMMIT in container["args"]
    assert {"name": "HF_HUB_OFFLINE", "value": "1"} in container["env"]
    events = await namespace.all_of("Event")
    assert sum(event["reason"] == "WeightsFetched" for event in events) == 1

    hub.sent_bytes.clear()
    asked = len(hub.requests)
    await resource.edit({"replicas": 2})
    await resource.wait("Progressing", "False", "UpToDate")
    assert (await resource.get())["status"]["ready"] == "2/2"
    assert len(hub.requests) == asked

    second = Resource(namespace, "second")
    await second.apply(spec(hub, {"claimName": "sd-cache"}))
    await second.wait("Ready", "True")
    assert len(hub.requests) > asked
    assert hub.sent_bytes == {}


async def test_what_cannot_be_fetched_is_told_tried_again_and_leaves_the_claim(
    namespace: TestNamespace, resource: Resource, hub: HubServer
) -> None:
    hub.released.set()
    missing = spec(hub, {"size": "1Gi"}, draft={"id": "org/later"})
    await resource.apply(missing)
    degraded = await resource.wait("Degraded", "True", "WeightsNotFetched")
    assert "org/later cannot be fetched" in degraded["message"]
    assert "correct spec.draft.id" in degraded["message"]
    assert await namespace.all_of("Deployment") == []

    hub.repositories["org/later"] = hub.repositories["org/draft"]
    await resource.wait("Ready", "True")
    await resource.wait("Degraded", "False")

    await resource.delete()

    async def gone() -> bool:
        kinds = ("Deployment", "Pod", "Job", "ConfigMap")
        left = [item for kind in kinds for item in await namespace.all_of(kind)]
        return not any("fathom.dev/name" in (i["metadata"].get("labels") or {}) for i in left)

    await until(gone, "every child is gone")
    (claim,) = await namespace.all_of("PersistentVolumeClaim")
    assert claim["status"]["phase"] == "Bound"


async def fetching(namespace: TestNamespace) -> list[Object]:
    return [pod for pod in await namespace.all_of("Pod") if not leads(pod)]


def leads(pod: Object) -> bool:
    role: str | None = pod["metadata"]["labels"].get("fathom.dev/role")
    return role == "leader"
