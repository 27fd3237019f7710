"""A resource on a real control plane comes to rest, and its operator may die there."""

import asyncio
import time

import pytest

from support.local_cluster import TestNamespace, eventually
from support.operated import SPEC, Resource, operator, resource
from support.operator_process import Operator

__all__ = ["operator", "resource"]

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(360)]

POD = SPEC["podTemplate"]["spec"]
# Also where zeros are written that the server drops, or replaces by its own defaults.
ZEROS = {
    "dnsPolicy": "",
    "schedulerName": "",
    "hostNetwork": False,
    "tolerations": [],
    "containers": [
        {
            **POD["containers"][0],
            "terminationMessagePath": "",
            "livenessProbe": {"timeoutSeconds": 0, "failureThreshold": 0, "initialDelaySeconds": 0},
        }
    ],
}
AT_REST_SECONDS = 65.0
"""More than a minute: whatever is done once a minute at most has had its turn."""


async def test_a_resource_becomes_ready_rests_and_survives_the_operator(
    namespace: TestNamespace, operator: Operator, resource: Resource
) -> None:
    await resource.apply({**SPEC, "podTemplate": {"spec": {**POD, **ZEROS}}})
    await resource.wait("Ready", "True")
    await resource.wait("Progressing", "False", "UpToDate")
    found = await resource.get()
    assert found["status"]["ready"] == "2/2"
    assert found["status"]["depth"]["summary"] == "3"
    assert found["status"]["engine"]["actuation"] == "Live"
    pods = {pod["metadata"]["uid"] for pod in await namespace.all_of("Pod")}

    async def in_force() -> bool:
        return (await resource.get())["status"]["depth"]["appliedReplicas"] == 2

    async def told() -> bool:
        events = await namespace.all_of("Event")
        return any(event["reason"] == "AllReplicasReady" for event in events)

    await eventually(in_force, "both engines report the depth document", 90)
    await eventually(told, "an event tells that all replicas are ready")

    before = len(operator.writes())
    await asyncio.sleep(AT_REST_SECONDS)
    assert operator.writes()[before:] == []

    operator.kill()
    operator.start()
    started = time.monotonic()

    async def looked() -> bool:
        requests = operator.requests()
        return sum(event.verb == "watch" for event in requests) > 4 or (
            time.monotonic() - started > 20
        )

    await eventually(looked, "the restarted operator looks around")
    await asyncio.sleep(10)
    assert operator.writes()[before:] == []
    assert {pod["metadata"]["uid"] for pod in await namespace.all_of("Pod")} == pods
    assert (await resource.get())["metadata"]["generation"] == found["metadata"]["generation"]
