"""Traffic on simulated engines: depth follows, and little is written on the way."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from local_cluster.control_plane.audit import AuditEvent
from support.local_cluster import TestNamespace
from support.operated import SPEC, Resource, operator, resource, under_traffic
from support.operator_process import Operator
from support.waiting import until

__all__ = ["operator", "resource"]

pytestmark = pytest.mark.cluster

MINUTES = 2
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
        await until(deeper, "depth moves beyond the user's tokens")
        before = await Moment.of(operator)
        settled = await settled_after(before)
        await asyncio.sleep(60 * MINUTES)
        after = await Moment.of(operator)
    assert [result.error for load in loads for result in load.results if not result.ok] == []
    found = (await resource.get())["status"]
    assert float(found["measured"]["acceptanceLength"]) > 3
    assert found["measured"]["tokensPerSecond"] > 0
    assert found["tuning"]["lastDecision"]["action"] in {"Move", "EndProbe", "Probe"}
    status = ("speculativedeployments", resource.name)
    tuning, depth = (("configmaps", f"{resource.name}-{each}") for each in ("tuning", "depth"))
    # A move is told at once; all else at most once a minute, one of which may have begun before.
    allowed = 1 + after.minutes_since(before) + after.moves
    written = after.written_since(before)
    assert written[status] <= allowed
    assert written[tuning] <= allowed
    # Once depth has settled it moves hardly more; a probe begins and ends.
    minutes, moves = after.minutes_since(settled), after.moves - settled.moves
    written = after.written_since(settled)
    assert written[status] <= 1 + minutes + moves
    assert written[tuning] <= 1 + minutes + moves
    assert written[depth] <= 2 * minutes + moves
    now = await namespace.all_of("Pod")
    assert {pod["metadata"]["uid"] for pod in now} == {pod["metadata"]["uid"] for pod in pods}
    assert all(
        status["restartCount"] == 0 for pod in now for status in pod["status"]["containerStatuses"]
    )


@dataclass(frozen=True)
class Moment:
    """What was written by then. Writes are paced by the clock, whatever else the machine does."""

    operator: Operator
    at_s: float
    writes: Sequence[AuditEvent]
    moves: int
    """Moves of the depth."""

    @classmethod
    async def of(cls, operator: Operator) -> "Moment":
        told = [event["reason"] for event in await operator.namespace.all_of("Event")]
        at_s = asyncio.get_running_loop().time()
        return cls(operator, at_s, operator.writes(), told.count("DepthMove"))

    def minutes_since(self, before: "Moment") -> float:
        return (self.at_s - before.at_s) / 60

    def written_since(self, before: "Moment") -> Counter[tuple[str, str]]:
        """How often what was written."""
        fresh = self.writes[len(before.writes) :]
        return Counter((each.resource, each.name) for each in fresh)


async def settled_after(before: Moment) -> Moment:
    """Once a minute has gone by without a move."""
    while True:
        await asyncio.sleep(60)
        now = await Moment.of(before.operator)
        if now.moves == before.moves:
            return now
        before = now
