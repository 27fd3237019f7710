"""What the operator has made is deleted by hand, and what it made was of another judgement."""

import json
from typing import Any

import pytest

from support.local_cluster import TestNamespace
from support.operated import SPEC, Resource, operator, resource
from support.operator_process import Operator
from support.waiting import until

__all__ = ["operator", "resource"]

pytestmark = pytest.mark.cluster


async def test_no_pod_goes_and_depth_stays(
    namespace: TestNamespace, operator: Operator, resource: Resource
) -> None:
    mode = {"tuning": {"mode": "Static"}}
    await resource.apply({**SPEC, "replicas": 1, "speculation": {**SPEC["speculation"], **mode}})
    await resource.wait("Ready", "True")
    (deployment,) = await namespace.all_of("Deployment")
    (pod,) = await namespace.all_of("Pod")

    # As from a Fathom that took no such engine for live, and nothing is left of what it kept.
    operator.kill()
    await resource.edit({"speculation": {"tuning": {"mode": "Auto"}}})
    await namespace.delete("ConfigMap", "sd-tuning")
    operator.start()
    await resource.wait("Progressing", "False", "UpToDate")
    assert "live once a rollout replaces" in (await resource.get())["status"]["engine"]["reason"]
    assert await same(namespace, "Deployment", deployment)
    assert await same(namespace, "Pod", pod)

    await namespace.delete("Deployment", deployment["metadata"]["name"])

    async def live() -> bool:
        return (await resource.get())["status"]["depth"].get("appliedReplicas") == 1

    await until(live, "it comes back live")
    (again,) = await namespace.all_of("Deployment")
    (pod,) = await namespace.all_of("Pod")
    assert again["metadata"]["name"] == deployment["metadata"]["name"]

    operator.kill()
    moved = {**await document(namespace), "schedule": [[1, 16, 5]]}
    moved["generation"] += 1
    await namespace.patch("ConfigMap", "sd-depth", {"data": {"depth.json": json.dumps(moved)}})
    operator.start()
    await resource.wait("Ready", "True")

    async def shown() -> bool:
        return (await resource.get())["status"]["depth"]["summary"] == "5"

    await until(shown, "the depth that was written is in the status")
    operator.kill()
    await namespace.delete("ConfigMap", "sd-depth")
    await namespace.delete("ConfigMap", "sd-tuning")
    operator.start()

    async def written() -> bool:
        return await namespace.get("ConfigMap", "sd-depth") is not None

    await until(written, "the depth document is written anew")
    anew = await document(namespace)
    assert anew["schedule"] == moved["schedule"]
    assert anew["generation"] > moved["generation"]
    await resource.wait("Progressing", "False", "UpToDate")
    assert await same(namespace, "Deployment", again)
    assert await same(namespace, "Pod", pod)


async def document(namespace: TestNamespace) -> dict[str, Any]:
    config_map = await namespace.get("ConfigMap", "sd-depth")
    assert config_map is not None
    found: dict[str, Any] = json.loads(config_map["data"]["depth.json"])
    return found


async def same(namespace: TestNamespace, kind: str, one: dict[str, Any]) -> bool:
    """Whether this is all that there is of its kind, in the generation that it had."""
    (found,) = await namespace.all_of(kind)
    keys = ("uid", "generation")
    return [found["metadata"].get(key) for key in keys] == [
        one["metadata"].get(key) for key in keys
    ]
