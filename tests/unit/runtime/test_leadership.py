"""Who does not surely lead any more writes nothing, and its process ends with an error."""

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest
import structlog
from kubernetes.aio.client import ApiClient, Configuration

from fathom.adapters.ports import KubeError
from fathom.api.names import ANNOTATION_PAGE_IP as PAGE_IP
from fathom.cluster.kinds import CONFIG_MAP
from fathom.cluster.manifest import Seen
from fathom.runtime.leadership import (
    LeadershipLostError,
    lead,
    lead_from_a_thread,
    work_while_held,
)
from fathom.runtime.main import exit_code
from fathom.runtime.operator_process import LIFELESS_AFTER_S, Pulse, loop_beside
from fathom.runtime.tenure import (
    RENEW_DEADLINE_S,
    FencedKube,
    Leader,
    Tenure,
    ip_address_of,
)
from support.api_server import ApiServer, served
from support.fake_kube import FakeKube
from support.leaping_time import in_leaping_time
from support.waiting import until

Work = Callable[[], Awaitable[None]]
ME = Leader("me", ip_address_of("10.0.0.7"))


class Clocks:
    def __init__(self) -> None:
        self.wall_s, self.boot_s = 1_800_000_000.0, 50.0
        self.tenure = Tenure((lambda: self.wall_s, lambda: self.boot_s))


def test_nothing_is_held_before_the_first_renewal() -> None:
    assert not Clocks().tenure.holds


@pytest.mark.parametrize(
    ("wall_s", "boot_s", "holds"),
    [
        (RENEW_DEADLINE_S - 1, RENEW_DEADLINE_S - 1, True),
        (RENEW_DEADLINE_S, RENEW_DEADLINE_S, False),
        (0, RENEW_DEADLINE_S, False),  # the wall clock was set back
        (-3600, RENEW_DEADLINE_S, False),
        (RENEW_DEADLINE_S, 0, False),  # the machine slept, and its other clock with it
    ],
)
def test_a_lease_is_held_until_its_deadline_by_both_clocks(
    wall_s: float, boot_s: float, *, holds: bool
) -> None:
    clocks = Clocks()
    clocks.tenure.renewed(clocks.tenure.now())
    clocks.wall_s += wall_s
    clocks.boot_s += boot_s
    assert clocks.tenure.holds is holds


def test_a_renewal_counts_from_when_it_was_asked_for() -> None:
    """The answer may have been seconds on its way, or have waited while the machine slept."""
    clocks = Clocks()
    asked_at = clocks.tenure.now()
    clocks.boot_s += RENEW_DEADLINE_S
    clocks.tenure.renewed(asked_at)
    assert not clocks.tenure.holds


async def test_no_write_is_sent_without_the_lease() -> None:
    kube, leads = FakeKube(), True
    fenced = FencedKube(kube, lambda: leads)
    config_map: Any = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "a", "namespace": "llm"},
        "data": {"x": "1"},
    }
    seen = Seen.of(await fenced.create(CONFIG_MAP, config_map))
    leads = False
    before = list(kube.writes)
    another = {**config_map, "metadata": {"name": "b", "namespace": "llm"}}
    for write in (
        fenced.create(CONFIG_MAP, another),
        fenced.apply(CONFIG_MAP, {**config_map, "data": {}}, seen),
        fenced.merge(CONFIG_MAP, "llm", "a", {"data": None}, seen),
        fenced.delete(CONFIG_MAP, "llm", "a", seen),
    ):
        with pytest.raises(KubeError, match="the lease was not renewed in time"):
            await write
    assert kube.writes == before
    assert await fenced.get(CONFIG_MAP, "llm", "a") is not None


async def test_who_makes_the_lease_holds_it_at_once_and_gives_it_back() -> None:
    api, tenure, writes = ApiServer(), Tenure(), []

    async def work() -> None:
        assert tenure.holds
        writes.append((api.lease_writes, api.lease["spec"]["holderIdentity"]))

    async with served(api) as url:
        await leading(url, work, tenure)
    assert writes == [(1, "me")]
    assert "holderIdentity" not in api.lease["spec"]
    assert not tenure.holds


def held_by_another(annotations: Mapping[str, str]) -> dict[str, Any]:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    held = {"holderIdentity": "another", "leaseDurationSeconds": 3600}
    return {
        "metadata": {"name": "it", "namespace": "fathom", "annotations": dict(annotations)},
        "spec": {**held, "acquireTime": now, "renewTime": now},
    }


@pytest.mark.parametrize("before", ["no lease", "one that was given back"])
async def test_the_lease_says_where_the_page_of_its_holder_is_for_as_long(before: str) -> None:
    api, kept = ApiServer(), {}
    if before != "no lease":
        kept = {"by": "others"}
        api.lease = held_by_another({PAGE_IP: "10.0.0.6", **kept})
        del api.lease["spec"]["holderIdentity"]

    async def work() -> None:
        assert api.lease["metadata"]["annotations"] == {PAGE_IP: "10.0.0.7", **kept}

    async with served(api) as url:
        await leading(url, work, Tenure())
    assert api.lease["metadata"]["annotations"] == kept


async def test_who_has_no_page_for_others_leaves_no_address_of_another() -> None:
    api = ApiServer()
    api.lease = held_by_another({PAGE_IP: "10.0.0.6"})
    del api.lease["spec"]["holderIdentity"]

    async def work() -> None:
        assert api.lease["spec"]["holderIdentity"] == "me"
        assert api.lease["metadata"]["annotations"] == {}

    async with served(api) as url:
        await leading(url, work, Tenure(), Leader("me"))


@pytest.mark.parametrize(
    ("told", "page_ip"),
    [
        ("10.0.0.6", "10.0.0.6"),
        ("fd00::6", "fd00::6"),
        ("", None),
        ("example.com", None),
        ("10.0.0.6/x", None),
        ("10.0.0.6:80", None),
        ("fe80::1%x@example.com", None),
        ("[fd00::6]", None),
    ],
)
async def test_who_stands_by_knows_where_the_page_is(told: str, page_ip: str | None) -> None:
    api, tenure = ApiServer(), Tenure()
    api.lease = held_by_another({PAGE_IP: told})
    async with served(api) as url, contending(url, Pulse(), tenure):
        await until(lambda: tenure.other, "who leads")
    assert tenure.other == Leader("another", ip_address_of(page_ip) if page_ip else None)


async def test_who_leads_knows_of_no_other_leader() -> None:
    api, tenure = ApiServer(), Tenure()
    tenure.other = Leader("another")

    async def work() -> None:
        await until(lambda: tenure.other is None, "a look at its own lease")

    api.lease = held_by_another({})
    api.lease["spec"]["holderIdentity"] = "me"
    async with served(api) as url:
        await leading(url, work, tenure)


@pytest.mark.parametrize("other", ["another", "zoe"])
async def test_a_lease_that_another_has_taken_is_not_given_back(other: str) -> None:
    api = ApiServer()

    async def work() -> None:
        api.lease["spec"]["holderIdentity"] = other

    async with served(api) as url:
        await leading(url, work, Tenure())
    assert api.lease["spec"]["holderIdentity"] == other


async def test_a_lease_that_may_not_be_made_is_asked_for_again() -> None:
    api, said = ApiServer(), list[str]()
    api.refuses_lease = True

    def note(_: object, __: str, event: dict[str, Any]) -> Any:
        said.append(event["event"])
        raise structlog.DropEvent

    structlog.configure(processors=[note])
    async with served(api) as url, contending(url, Pulse()) as contender:
        await until(lambda: said or contender.done(), "a word")
        assert not contender.done()
    assert said[0] == "lease not created"
    assert not api.lease


async def test_who_has_lost_the_lease_leaves_without_asking_for_it() -> None:
    """An API server that answers nobody is how most leases are lost: it would take its time."""
    api, tenure, reads = ApiServer(), Tenure(), []

    async def work() -> None:
        tenure.given_back()
        reads.append(api.lease_reads)

    async with served(api) as url:
        await leading(url, work, tenure)
    assert reads == [api.lease_reads]


async def test_who_is_told_to_end_while_it_takes_the_lease_gives_it_back() -> None:
    """Else nobody would lead until it runs out: the answer that it is taken never comes."""
    api, tenure = ApiServer(), Tenure()
    api.may_write_lease.clear()

    async def never() -> None:
        raise AssertionError("it is told to end before it leads")

    async with served(api) as url:
        taking = asyncio.create_task(leading(url, never, tenure))
        await until(lambda: api.lease_writes, "a write of the lease")
        taking.cancel()
        # Long after whoever asked for it has stopped waiting.
        asyncio.get_running_loop().call_later(0.1, api.may_write_lease.set)
        await asyncio.gather(taking, return_exceptions=True)
        await until(lambda: api.lease, "the lease")
    assert "holderIdentity" not in api.lease["spec"]
    assert not tenure.holds


async def test_who_stands_by_says_who_leads() -> None:
    said = asyncio.Queue[tuple[str, str]]()

    def note(_: object, __: str, event: dict[str, Any]) -> Any:
        said.put_nowait((event["event"], event["leader"]))
        raise structlog.DropEvent

    structlog.configure(processors=[note])
    api = ApiServer()
    api.lease = held_by_another({})
    async with served(api) as url, contending(url, Pulse()):
        assert await said.get() == ("stands by: another operator leads", "another")
    assert api.lease_writes == 0


@asynccontextmanager
async def contending(
    url: str, pulse: Pulse, tenure: Tenure | None = None
) -> AsyncIterator[asyncio.Task[None]]:
    """An operator that never gets the lease."""

    async def never() -> None:
        raise AssertionError("it has no lease")

    async with ApiClient(Configuration(host=url)) as client:
        task = asyncio.create_task(
            lead(
                client,
                asyncio.ensure_future,
                name="it",
                namespace="fathom",
                who=ME,
                work=never,
                tenure=tenure or Tenure(),
                pulse=pulse,
            )
        )
        yield task
        task.cancel()


async def leading(url: str, work: Work, tenure: Tenure, who: Leader = ME) -> None:
    await lead_from_a_thread(
        Configuration(host=url), name="it", namespace="fathom", who=who, work=work, tenure=tenure
    )


async def test_a_loop_that_is_full_keeps_its_lease() -> None:
    """Nothing in it gets a turn from one renewal to the next."""
    api = ApiServer()

    async def work() -> None:
        # Yes: this is what the loop must never do, and what a thousand passes together amount to.
        while api.lease_renewals < 2:
            time.sleep(0.05)  # noqa: ASYNC251

    async with loop_beside("server") as there:
        serving = served(api)
        url = await there(serving.__aenter__())
        await leading(url, work, Tenure())
        await there(serving.__aexit__(None, None, None))
    assert api.lease_renewals >= 2


async def test_who_hangs_neither_takes_nor_renews_a_lease() -> None:
    # Whenever somebody looks, the last beat was that long ago.
    api, clock = ApiServer(), itertools.count(step=LIFELESS_AFTER_S)
    pulse = Pulse(lambda: next(clock))
    said = asyncio.Event()

    def note(*_: object) -> object:
        said.set()
        raise structlog.DropEvent

    structlog.configure(processors=[note])
    async with served(api) as url, contending(url, pulse):
        await said.wait()
    assert api.lease_writes == 0


def test_a_loop_lives_until_it_has_not_come_round_for_half_a_minute() -> None:
    at_s = 0.0
    pulse = Pulse(lambda: at_s)
    at_s = LIFELESS_AFTER_S - 1
    assert pulse.alive
    at_s = LIFELESS_AFTER_S
    assert not pulse.alive
    pulse.beat()
    assert pulse.alive


async def test_a_lost_lease_ends_the_work_with_an_error() -> None:
    lost, cancelled = asyncio.get_running_loop().create_future(), asyncio.Event()

    async def work() -> None:
        lost.set_result(None)
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    with pytest.raises(LeadershipLostError, match="lease fathom/operator could not be renewed"):
        await work_while_held(lost, work, lease="fathom/operator", holds=lambda: True)
    assert cancelled.is_set()


impatient = partial(work_while_held, lease="fathom/operator", look_s=0.01, given_up_after_s=0.1)


@in_leaping_time
async def test_a_lease_that_looks_lost_for_a_moment_ends_nothing() -> None:
    """As where the clock is set forward, until the next renewal."""
    renewing: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    looks = iter([True, False, False, True, False])

    async def work() -> None:
        await asyncio.sleep(0.2)

    def holds() -> bool:
        return next(looks, True)

    await impatient(renewing, work, holds=holds)


@in_leaping_time
async def test_a_renewal_that_hangs_ends_the_work_once_the_lease_may_be_another_s() -> None:
    hanging: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def work() -> None:
        await asyncio.Event().wait()

    with pytest.raises(LeadershipLostError, match="could not be renewed"):
        await impatient(hanging, work, holds=lambda: False)
    assert hanging.cancelled()


async def test_work_that_ends_by_itself_is_no_error() -> None:
    renewing: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def work() -> None:
        return

    await work_while_held(renewing, work, lease="fathom/operator", holds=lambda: True)
    assert renewing.cancelled()


def test_the_process_says_how_it_ended() -> None:
    async def loses_the_lease() -> None:
        raise LeadershipLostError("lease fathom/operator could not be renewed")

    async def stops_at_a_signal() -> None:
        return

    assert exit_code(loses_the_lease()) == 1
    assert exit_code(stops_at_a_signal()) == 0
