"""Leader election on a real API server."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from fathom.runtime.leading.leadership import (
    LEASE_S,
    RETRY_S,
    LeadershipLostError,
    Tenure,
    lead_from_a_thread,
)
from fathom_local.kube import MERGE_PATCH
from support.local_cluster import TestNamespace, eventually

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]

NAME = "fathom-operator"
TAKE_OVER_SECONDS = 2 * LEASE_S + 10.0


class Contenders:
    """Operators that want one lease, and who has led so far."""

    def __init__(self, namespace: TestNamespace) -> None:
        self.namespace = namespace
        self.led: list[str] = []
        self.tasks: list[asyncio.Task[None]] = []
        self.tenures: dict[str, Tenure] = {}

    def enter(self, who: str, *, until: asyncio.Event | None = None) -> asyncio.Task[None]:
        """Somebody works once it leads: until it has ended its work, or for good."""

        async def work() -> None:
            self.led.append(who)
            await (until or asyncio.Event()).wait()

        async def contend() -> None:
            async with self.namespace.cluster.api_client() as api:
                await lead_from_a_thread(
                    api.configuration,
                    name=NAME,
                    namespace=self.namespace.name,
                    who=who,
                    work=work,
                    tenure=self.tenures.setdefault(who, Tenure()),
                )

        task = asyncio.create_task(contend())
        self.tasks.append(task)
        return task

    async def have_led(self, *who: str) -> None:
        async def look() -> bool:
            return self.led == [*who]

        await eventually(look, f"{who} have led, in this order", TAKE_OVER_SECONDS)


@pytest.fixture
async def contenders(namespace: TestNamespace) -> AsyncIterator[Contenders]:
    contenders = Contenders(namespace)
    yield contenders
    for task in contenders.tasks:
        task.cancel()
    await asyncio.gather(*contenders.tasks, return_exceptions=True)


async def test_one_leads_and_the_next_takes_over_when_it_dies(contenders: Contenders) -> None:
    first = contenders.enter("first")
    await contenders.have_led("first")
    contenders.enter("second")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(asyncio.shield(first), 5)
    assert contenders.led == ["first"]
    assert [who for who, tenure in contenders.tenures.items() if tenure.holds] == ["first"]
    first.cancel()
    await contenders.have_led("first", "second")


async def test_a_restarted_operator_of_the_same_pod_need_not_wait(contenders: Contenders) -> None:
    killed = contenders.enter("pod-0")
    await contenders.have_led("pod-0")
    killed.cancel()
    async with asyncio.timeout(5):
        contenders.enter("pod-0")
        while contenders.led != ["pod-0", "pod-0"]:
            await asyncio.sleep(0.05)


async def test_who_has_ended_its_work_gives_the_lease_to_the_next(contenders: Contenders) -> None:
    """As at an upgrade: the next one waits for no lease to run out."""
    done = asyncio.Event()
    first = contenders.enter("first", until=done)
    await contenders.have_led("first")
    contenders.enter("second")
    await asyncio.sleep(RETRY_S)
    done.set()
    async with asyncio.timeout(5):
        await first
        while contenders.led != ["first", "second"]:
            await asyncio.sleep(0.05)
    assert not contenders.tenures["first"].holds


async def test_who_loses_the_lease_stops_working(
    namespace: TestNamespace, contenders: Contenders
) -> None:
    first = contenders.enter("first")
    await contenders.have_led("first")
    path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace.name}/leases/{NAME}"
    stolen = {"spec": {"holderIdentity": "thief", "leaseDurationSeconds": 3600}}

    async def stopped() -> bool:
        # A renewal may be under way and win; then the lease is stolen again.
        await namespace.api.request("PATCH", path, body=stolen, content_type=MERGE_PATCH)
        return first.done()

    await eventually(stopped, "the first operator stops", TAKE_OVER_SECONDS)
    with pytest.raises(LeadershipLostError, match="could not be renewed"):
        await first
