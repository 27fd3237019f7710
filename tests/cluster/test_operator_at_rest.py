"""A resource on a real control plane comes to rest, and its operator may die there."""

import asyncio
import datetime as dt

import pytest

from fathom.api import names
from support.local_cluster import TestNamespace
from support.operated import SPEC, Resource, operator, resource
from support.operator_process import Operator
from support.waiting import until

__all__ = ["operator", "resource"]

pytestmark = pytest.mark.cluster

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

    await until(in_force, "both engines report the depth document")
    await until(told, "an event tells that all replicas are ready")

    before = len(operator.writes())
    await asyncio.sleep(AT_REST_SECONDS)
    assert operator.writes()[before:] == []

    operator.kill()
    killed_at = dt.datetime.now(dt.UTC)
    operator.start()

    async def looked() -> bool:
        look = (names.PLURAL, "get")
        return any(
            (event.resource, event.verb) == look and event.at > killed_at
            for event in operator.requests()
        )

    await until(looked, "the restarted operator looks at the resource")
    await asyncio.sleep(10)
    assert operator.writes()[before:] == []
    assert {pod["metadata"]["uid"] for pod in await namespace.all_of("Pod")} == pods
    assert (await resource.get())["metadata"]["generation"] == found["metadata"]["generation"]
