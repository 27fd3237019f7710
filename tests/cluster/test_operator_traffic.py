"""Traffic on simulated engines: depth follows, and little is written on the way."""

import asyncio
from collections import Counter
from contextlib import AsyncExitStack

import pytest

from fathom_local.engine.traffic import LoadGenerator, Phase
from fathom_local.engine.walk import EASY
from support.local_cluster import TestNamespace, eventually
from support.operated import SPEC, Resource, operator, resource
from support.operator_process import Operator

__all__ = ["operator", "resource"]

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(420)]

MINUTES = 2.0


async def test_steady_traffic_deepens_speculation_and_is_hardly_written_about(
    namespace: TestNamespace, operator: Operator, resource: Resource
) -> None:
    speculation = {**SPEC["speculation"], "tuning": {"windowSeconds": 10}}
    await resource.apply({**SPEC, "speculation": speculation})
    await resource.wait("Ready", "True")
    pods = await namespace.all_of("Pod")
    async with AsyncExitStack() as stack:
        loads = [
            await stack.enter_async_context(
                LoadGenerator(f"http://{pod['status']['podIP']}:8000", "pair", seed=number)
            )
            for number, pod in enumerate(pods)
        ]
        for load in loads:
            load.set_phase(Phase(EASY, concurrency=2))

        async def deeper() -> bool:
            schedule = (await resource.get())["status"]["depth"]["schedule"]
            return bool(schedule[0][2] > SPEC["speculation"]["tokens"])

        # Nearly every draft of this traffic is accepted: the deepest is the best by far.
        await eventually(deeper, "depth moves beyond the user's tokens", 180)
        before = len(operator.writes())
        await asyncio.sleep(60 * MINUTES)
        writes = operator.writes()[before:]
    assert [result.error for load in loads for result in load.results if not result.ok] == []
    found = (await resource.get())["status"]
    assert float(found["measured"]["acceptanceLength"]) > 3
    assert found["measured"]["tokensPerSecond"] > 0
    assert found["tuning"]["lastDecision"]["action"] in {"Move", "EndProbe", "Probe"}
    # A move is told at once; all else at most once a minute, one of which may have begun before.
    moves = sum(event["reason"] == "DepthMove" for event in await namespace.all_of("Event"))
    allowed = MINUTES + 1 + moves
    written = Counter((event.resource, event.name) for event in writes)
    assert written["speculativedeployments", resource.name] <= allowed
    assert written["configmaps", f"{resource.name}-tuning"] <= allowed
    after = await namespace.all_of("Pod")
    assert {pod["metadata"]["uid"] for pod in after} == {pod["metadata"]["uid"] for pod in pods}
    assert all(
        status["restartCount"] == 0
        for pod in after
        for status in pod["status"]["containerStatuses"]
    )
