"""Two replicas of the operator: one dies, or is told to stop, in the middle of a rollout."""

import asyncio
import datetime as dt
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from fathom.api import names
from fathom_local.engine.traffic import LoadGenerator, Phase
from fathom_local.engine.walk import EASY
from fathom_local.slowness import slowness
from support.local_cluster import TestNamespace, eventually
from support.operated import SIMULATED, SPEC, Resource
from support.operator_process import Operator, lease_in, operator_in

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(420)]

LEASE_SECONDS = 15.0
"""It has to run out after a kill, and is given back after a stop."""
WORK_SECONDS = 5.0
"""What is left, on a machine that is not slow."""
ROLLED_SECONDS = 120.0
REPLICAS = 2
# With its own time to drain: no request may be lost.
SERVING = {
    **SPEC,
    "replicas": REPLICAS,
    "engine": {**SPEC["engine"], "drainSeconds": 10},
    "podTemplate": {"spec": {"containers": [{"name": "vllm", "command": SIMULATED}]}},
    "rollout": {"canaryMinutes": 0},
}


@dataclass
class Pair:
    """Two replicas of one operator, one of which leads."""

    leader: Operator
    standby: Operator

    @property
    def namespace(self) -> TestNamespace:
        return self.leader.namespace

    async def holds(self, operator: Operator) -> bool:
        return (await lease_in(self.namespace)).get("holderIdentity") == operator.pod

    async def seconds_to_take_over(self, after: dt.datetime, within_seconds: float) -> float:
        """From that moment to the first look that the standby takes at a resource.

        Both have one account. So the look counts that comes after the standby has the lease, which
        is when the other one has ended.
        """

        async def first_look() -> dt.datetime | None:
            if not await self.holds(self.standby):
                return None
            taken = dt.datetime.fromisoformat((await lease_in(self.namespace))["acquireTime"])
            looks = [
                event.at
                for event in self.standby.requests()
                if (event.resource, event.verb) == (names.PLURAL, "get")
                and event.at > max(taken, after)
            ]
            return min(looks, default=None)

        look = await eventually(first_look, "the standby takes over", within_seconds + 10)
        self.leader, self.standby = self.standby, self.leader
        return (look - after).total_seconds()


@pytest.fixture
async def pair(namespace: TestNamespace, tmp_path: Path) -> AsyncIterator[Pair]:
    async with operator_in(namespace, tmp_path, leader_elect=True) as first:
        second = replace(first, log=tmp_path / "standby.log", pod="operator-1", process=None)
        try:
            yield Pair(first, second)
        finally:
            if second.process is not None and second.process.poll() is None:
                second.kill()


class Pods:
    """All that were ever seen, by revision."""

    def __init__(self, namespace: TestNamespace) -> None:
        self._namespace = namespace
        self.by_revision: dict[str, set[str]] = {}

    async def look(self) -> None:
        for pod in await self._namespace.all_of("Pod"):
            revision = pod["metadata"]["labels"][names.LABEL_REVISION]
            self.by_revision.setdefault(revision, set()).add(pod["metadata"]["uid"])

    async def keep_looking(self) -> None:
        while True:
            await self.look()
            await asyncio.sleep(0.2)


async def test_the_other_goes_on_with_a_rollout_under_traffic(
    namespace: TestNamespace, pair: Pair
) -> None:
    resource, pods = Resource(namespace), Pods(namespace)
    after_a_stop = WORK_SECONDS * max(1.0, slowness())
    after_a_kill = LEASE_SECONDS + after_a_stop
    await eventually(lambda: pair.holds(pair.leader), "the first one leads")
    pair.standby.start()
    await resource.apply(SERVING)
    await resource.wait("Ready", "True")
    took: dict[str, float] = {}
    async with asyncio.TaskGroup() as tasks, LoadGenerator(await url_of(resource), "pair") as load:
        looking = tasks.create_task(pods.keep_looking())
        load.set_phase(Phase(EASY, concurrency=2))

        await rolls(resource, "12")
        killed_at = dt.datetime.now(dt.UTC)
        pair.leader.kill()
        took["kill"] = await pair.seconds_to_take_over(killed_at, after_a_kill)
        await rolled(resource)

        pair.standby.start()
        await rolls(resource, "8")
        told_at = dt.datetime.now(dt.UTC)
        stopping = asyncio.create_task(pair.leader.terminate())
        took["stop"] = await pair.seconds_to_take_over(told_at, after_a_stop)
        assert await stopping == 0
        await rolled(resource)
        looking.cancel()

    print(f"taken over in {took}, {len(load.results)} requests")
    assert took["kill"] <= after_a_kill
    assert took["stop"] <= after_a_stop
    assert [result.error for result in load.results if not result.ok] == []
    # Each revision had its pods once: nothing was rolled out twice, or back.
    assert [len(each) for each in pods.by_revision.values()] == [REPLICAS] * 3
    told = [event["reason"] for event in await namespace.all_of("Event")]
    assert (told.count("Rolling"), told.count("RolledOut")) == (2, 2)


async def url_of(resource: Resource) -> str:
    """Where clients send requests: the Service, which has the resource's name."""
    service = await resource.namespace.get("Service", resource.name)
    assert service is not None
    return f"http://{service['spec']['clusterIP']}:{service['spec']['ports'][0]['port']}"


async def rolls(resource: Resource, batch: str) -> None:
    """Change what needs new pods; return once the first of them is made."""
    before = len(await resource.namespace.all_of("Deployment"))
    args = ["--max-num-seqs", batch, "--enforce-eager"]
    await resource.edit({"engine": {"args": args}})

    async def begun() -> bool:
        return len(await resource.namespace.all_of("Deployment")) > before

    await eventually(begun, "the rollout begins")


async def rolled(resource: Resource) -> None:
    """Until the rollout is over."""

    async def over() -> bool:
        deployments = await resource.namespace.all_of("Deployment")
        rollout = (await resource.get())["status"].get("rollout", {})
        return len(deployments) == 1 and rollout.get("stage") == "Complete"

    await eventually(over, "only the new revision is left", ROLLED_SECONDS)
