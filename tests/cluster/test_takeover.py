"""Two replicas of the operator: one dies, or is told to stop, in the middle of a rollout."""

import asyncio
import datetime as dt
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from fathom.api import names
from local_cluster.engine.language import EASY
from local_cluster.engine.traffic import LoadGenerator, Phase
from local_cluster.kube import Key, Mirror, Object
from support.local_cluster import TestNamespace
from support.operated import SIMULATED, SPEC, Resource
from support.operator_process import LEASES, Operator, lease_in, operator_in
from support.waiting import until

pytestmark = pytest.mark.cluster

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

    async def taken_over(self, after: dt.datetime) -> float:
        """Seconds from that moment to the first look that the standby takes at a resource.

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

        look = await until(first_look, "the standby takes over")
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


@asynccontextmanager
async def holders(namespace: TestNamespace) -> AsyncIterator[list[str]]:
    """Who holds the lease, one after the other; empty: nobody, as it was given back."""
    seen: list[str] = []

    def changed(_: Key, lease: Object | None) -> None:
        holder = "" if lease is None else lease["spec"].get("holderIdentity", "")
        if holder not in seen[-1:]:
            seen.append(holder)

    mirror = Mirror(namespace.api, LEASES.format(namespace.name), changed)
    following = asyncio.create_task(mirror.run())
    try:
        await mirror.synced.wait()
        yield seen
    finally:
        following.cancel()


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
    await until(lambda: pair.holds(pair.leader), "the first one leads")
    pair.standby.start()
    await resource.apply(SERVING)
    await resource.wait("Ready", "True")
    took: dict[str, float] = {}
    async with (
        holders(namespace) as held,
        asyncio.TaskGroup() as tasks,
        LoadGenerator(await url_of(resource), "pair") as load,
    ):
        looking = tasks.create_task(pods.keep_looking())
        load.set_phase(Phase(EASY, concurrency=2))

        await rolls(resource, "12")
        killed_at = dt.datetime.now(dt.UTC)
        pair.leader.kill()
        took["kill"] = await pair.taken_over(killed_at)
        await rolled(resource)

        pair.standby.start()
        await rolls(resource, "8")
        told_at = dt.datetime.now(dt.UTC)
        stopping = asyncio.create_task(pair.leader.terminate())
        took["stop"] = await pair.taken_over(told_at)
        assert await stopping == 0
        await rolled(resource)
        looking.cancel()

    print(f"taken over in {took}, {len(load.results)} requests")
    # After a kill the lease has to run out; after a stop it was given back, and nobody waits.
    first, second = pair.leader.pod, pair.standby.pod
    assert held == [first, second, "", first]
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

    await until(begun, "the rollout begins")


async def rolled(resource: Resource) -> None:
    """Until the rollout is over."""

    async def over() -> bool:
        deployments = await resource.namespace.all_of("Deployment")
        rollout = (await resource.get())["status"].get("rollout", {})
        return len(deployments) == 1 and rollout.get("stage") == "Complete"

    await until(over, "only the new revision is left")
