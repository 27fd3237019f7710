"""Who does not surely lead any more writes nothing, and its process ends with an error."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from kubernetes.aio.client import ApiClient, Configuration

from fathom.adapters.ports import KubeError
from fathom.core.cluster.kinds import CONFIG_MAP
from fathom.core.cluster.manifest import Seen
from fathom.runtime.fenced_kube import FencedKube
from fathom.runtime.leadership import (
    RENEW_DEADLINE_S,
    LeadershipLostError,
    Tenure,
    lead,
    work_while_elected,
)
from fathom.runtime.process.main import exit_code
from support.api_server import ApiServer, served
from support.fake_kube import FakeKube

Elected = Callable[[], Coroutine[Any, Any, None]]


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

    async with served(api) as url, ApiClient(Configuration(host=url)) as client:
        await lead(client, name="it", namespace="fathom", who="me", work=work, tenure=tenure)
    assert writes == [(1, "me")]
    assert "holderIdentity" not in api.lease["spec"]
    assert not tenure.holds


async def test_a_lease_that_another_has_taken_is_not_given_back() -> None:
    api, tenure = ApiServer(), Tenure()

    async def work() -> None:
        api.lease["spec"]["holderIdentity"] = "another"

    async with served(api) as url, ApiClient(Configuration(host=url)) as client:
        await lead(client, name="it", namespace="fathom", who="me", work=work, tenure=tenure)
    assert api.lease["spec"]["holderIdentity"] == "another"


class Election:
    """Won at once, and lost when the test says so."""

    def __init__(self) -> None:
        self.lost = asyncio.Event()
        self.tasks: list[asyncio.Task[None]] = []

    async def run(self, stay_elected: Elected) -> None:
        self.tasks.append(asyncio.create_task(stay_elected()))
        await self.lost.wait()
        self.tasks[0].cancel()


async def test_a_lost_lease_ends_the_work_with_an_error() -> None:
    election, cancelled = Election(), asyncio.Event()

    async def work() -> None:
        election.lost.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    with pytest.raises(LeadershipLostError, match="lease fathom/operator could not be renewed"):
        await work_while_elected(election.run, work, lease="fathom/operator")
    assert cancelled.is_set()


async def test_a_lease_that_is_lost_before_the_work_begins_is_an_error() -> None:
    async def lost_at_once(_: Elected) -> None:
        return

    async def work() -> None:
        raise AssertionError("it was never elected")

    with pytest.raises(LeadershipLostError, match="lost as soon as it was taken"):
        await work_while_elected(lost_at_once, work, lease="fathom/operator")


async def test_work_that_ends_by_itself_is_no_error() -> None:
    async def work() -> None:
        return

    await work_while_elected(Election().run, work, lease="fathom/operator")


def test_the_process_says_how_it_ended() -> None:
    async def loses_the_lease() -> None:
        raise LeadershipLostError("lease fathom/operator could not be renewed")

    async def stops_at_a_signal() -> None:
        return

    assert exit_code(loses_the_lease()) == 1
    assert exit_code(stops_at_a_signal()) == 0
