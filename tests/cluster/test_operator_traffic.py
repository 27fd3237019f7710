"""Traffic on simulated engines: depth follows, and little is written on the way."""

import asyncio
from collections import Counter

import pytest

from support.local_cluster import TestNamespace, eventually
from support.operated import SPEC, Resource, operator, resource, under_traffic
from support.operator_process import Operator

__all__ = ["operator", "resource"]

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

MINUTES = 2.0
SPECULATION = {**SPEC["speculation"], "tuning": {"windowSeconds": 10}}


async def test_steady_traffic_deepens_speculation_and_is_hardly_written_about(
    namespace: TestNamespace, operator: Operator, resource: Resource
) -> None:
    await resource.apply({**SPEC, "speculation": SPECULATION})
    await resource.wait("Ready", "True")
    pods = await namespace.all_of("Pod")
    async with under_traffic(namespace) as loads:

        async def deeper() -> bool:
            schedule = (await resource.get())["status"]["depth"]["schedule"]
            return bool(schedule[0][2] > SPEC["speculation"]["tokens"])

        # The deepest is the best by far.
        await eventually(deeper, "depth moves beyond the user's tokens", 180)
        before = len(operator.writes())
        await asyncio.sleep(60)
        settled = len(operator.writes())
        await asyncio.sleep(60 * MINUTES)
        writes = operator.writes()
    assert [result.error for load in loads for result in load.results if not result.ok] == []
    found = (await resource.get())["status"]
    assert float(found["measured"]["acceptanceLength"]) > 3
    assert found["measured"]["tokensPerSecond"] > 0
    assert found["tuning"]["lastDecision"]["action"] in {"Move", "EndProbe", "Probe"}
    status = ("speculativedeployments", resource.name)
    tuning, depth = (("configmaps", f"{resource.name}-{each}") for each in ("tuning", "depth"))
    # A move is told at once; all else at most once a minute, one of which may have begun before.
    moves = sum(event["reason"] == "DepthMove" for event in await namespace.all_of("Event"))
    allowed = 1 + MINUTES + 1 + moves
    written = Counter((event.resource, event.name) for event in writes[before:])
    assert written[status] <= allowed
    assert written[tuning] <= allowed
    # Once depth has settled there are no moves; a probe begins and ends.
    written = Counter((event.resource, event.name) for event in writes[settled:])
    assert written[status] <= MINUTES + 1
    assert written[tuning] <= MINUTES + 1
    assert written[depth] <= 2 * MINUTES
    after = await namespace.all_of("Pod")
    assert {pod["metadata"]["uid"] for pod in after} == {pod["metadata"]["uid"] for pod in pods}
    assert all(
        status["restartCount"] == 0
        for pod in after
        for status in pod["status"]["containerStatuses"]
    )
