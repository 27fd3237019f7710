"""After traffic on simulated engines nothing is written any more."""

import asyncio
import json

import pytest

from support.local_cluster import TestNamespace
from support.operated import SPEC, Resource, operator, resource, under_traffic
from support.operator_process import Operator
from support.waiting import until

__all__ = ["operator", "resource"]

pytestmark = pytest.mark.cluster

SPECULATION = {**SPEC["speculation"], "tuning": {"windowSeconds": 10}}


async def test_when_traffic_has_ended_nothing_is_written(
    namespace: TestNamespace, operator: Operator, resource: Resource
) -> None:
    await resource.apply({**SPEC, "speculation": SPECULATION})
    await resource.wait("Ready", "True")

    async def status() -> dict[str, dict[str, object]]:
        found: dict[str, dict[str, object]] = (await resource.get())["status"]
        return found

    async with under_traffic(namespace):

        async def measured() -> bool:
            return "measured" in await status()

        await until(measured, "the traffic is measured")

    async def rests() -> bool:
        """Whether the status says that there is no traffic, and is up to date with the depth."""
        kept = await namespace.get("ConfigMap", f"{resource.name}-depth")
        assert kept is not None
        document = json.loads(kept["data"]["depth.json"])
        found = await status()
        depth, tuning = found["depth"], found["tuning"]
        reported = depth["generation"] == document["generation"] and depth["appliedReplicas"] == 2
        return reported and not document.get("pods") and tuning["summary"] == "Auto/NoTraffic"

    await until(rests, "the operator sees that traffic has ended")
    before = len(operator.writes())
    await asyncio.sleep(60)
    assert operator.writes()[before:] == []
