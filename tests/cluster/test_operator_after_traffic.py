"""After traffic on simulated engines nothing is written any more."""

import asyncio
import json

import pytest

from fathom.reconcile.said import QUIET_S
from fathom.tuning.checks.probing import GIVE_UP_S
from fathom.tuning.checks.readiness import TRAFFIC_WINDOWS
from support.local_cluster import TestNamespace, eventually
from support.operated import SPEC, Resource, operator, resource, under_traffic
from support.operator_process import Operator

__all__ = ["operator", "resource"]

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

WINDOW_SECONDS = 10
SPECULATION = {**SPEC["speculation"], "tuning": {"windowSeconds": WINDOW_SECONDS}}
REST_SECONDS = TRAFFIC_WINDOWS * WINDOW_SECONDS + GIVE_UP_S + QUIET_S + 15
"""From the last request: the tuner's windows, a probe that nobody sees any more, and the wait of
what is not urgent, with some seconds for the operator's passes."""


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

        await eventually(measured, "the traffic is measured", 120)

    async def rests() -> bool:
        """Whether the status says that there is no traffic, and is up to date with the depth."""
        kept = await namespace.get("ConfigMap", f"{resource.name}-depth")
        assert kept is not None
        document = json.loads(kept["data"]["depth.json"])
        found = await status()
        depth, tuning = found["depth"], found["tuning"]
        reported = depth["generation"] == document["generation"] and depth["appliedReplicas"] == 2
        return reported and not document.get("pods") and tuning["summary"] == "Auto/NoTraffic"

    await eventually(rests, "the operator sees that traffic has ended", REST_SECONDS)
    before = len(operator.writes())
    await asyncio.sleep(60)
    assert operator.writes()[before:] == []
