"""Leader election on a real API server."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from fathom.runtime.leadership import LEASE_S, LeadershipLostError, lead_from_a_thread
from fathom.runtime.tenure import Leader, Tenure
from local_cluster.control_plane.audit import read_events
from local_cluster.kube import MERGE_PATCH
from support.local_cluster import TestNamespace
from support.waiting import until

pytestmark = pytest.mark.cluster

NAME = "fathom-operator"
NEVER_RUNS_OUT_S = 3600


class Contenders:
    """Operators that want one lease, and who has led so far."""

    def __init__(self, namespace: TestNamespace) -> None:
        self.namespace = namespace
        self.led: list[str] = []
        self.tasks: list[asyncio.Task[None]] = []
        self.tenures: dict[str, Tenure] = {}

    def enter(
        self, who: str, *, done: asyncio.Event | None = None, lease_s: int = LEASE_S
    ) -> asyncio.Task[None]:
        """Somebody works once it leads: until it has ended its work, or for good."""

        async def work() -> None:
            self.led.append(who)
            await (done or asyncio.Event()).wait()

        async def contend() -> None:
            async with self.namespace.cluster.api_client() as api:
                await lead_from_a_thread(
                    api.configuration,
                    name=NAME,
                    namespace=self.namespace.name,
                    who=Leader(who),
                    work=work,
                    tenure=self.tenures.setdefault(who, Tenure()),
                    lease_s=lease_s,
                )

        task = asyncio.create_task(contend())
        self.tasks.append(task)
        return task

    async def have_led(self, *who: str) -> None:
        async def look() -> bool:
            return self.led == [*who]

        await until(look, f"{who} have led, in this order")

    async def somebody_looks(self, times: int) -> None:
        """Who does not lead has looked at the lease so often; who leads writes after each look."""

        def looks() -> int:
            events = read_events(self.namespace.cluster.audit_log)
            asked = [
                each.verb
                for each in events
                if (each.namespace, each.name) == (self.namespace.name, NAME)
            ]
            return 2 * asked.count("get") - len(asked)

        # One look of the leader's may be without its write yet.
        await until(lambda: looks() > times, "who does not lead looks at the lease", every_s=0.1)


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
    await contenders.somebody_looks(2)
    assert not first.done()
    assert contenders.led == ["first"]
    assert [who for who, tenure in contenders.tenures.items() if tenure.holds] == ["first"]
    first.cancel()
    await contenders.have_led("first", "second")


async def test_a_restarted_operator_of_the_same_pod_need_not_wait(contenders: Contenders) -> None:
    killed = contenders.enter("pod-0")
    await contenders.have_led("pod-0")
    killed.cancel()
    contenders.enter("pod-0", lease_s=NEVER_RUNS_OUT_S)
    await contenders.have_led("pod-0", "pod-0")


async def test_who_has_ended_its_work_gives_the_lease_to_the_next(contenders: Contenders) -> None:
    """As at an upgrade: the next one waits for no lease to run out."""
    done = asyncio.Event()
    first = contenders.enter("first", done=done)
    await contenders.have_led("first")
    contenders.enter("second", lease_s=NEVER_RUNS_OUT_S)
    await contenders.somebody_looks(1)
    done.set()
    await first
    await contenders.have_led("first", "second")
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

    await until(stopped, "the first operator stops")
    with pytest.raises(LeadershipLostError, match="could not be renewed"):
        await first
