"""`fathom run` as its pod runs it: it leads before it acts, is watched, and ends at a signal."""

import asyncio
import os
import resource
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import aiohttp
import pytest
import yaml

from fathom.runtime.leadership import LeadershipLostError, work_while_held
from fathom.runtime.loop_registry import Loops
from fathom.runtime.main import at_work, ender
from support.api_server import ApiServer, served
from support.waiting import guarded, turns, until


def kubeconfig(url: str) -> str:
    return yaml.safe_dump(
        {
            "current-context": "it",
            "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
            "clusters": [{"name": "it", "cluster": {"server": url}}],
            "users": [{"name": "it", "user": {"token": "any"}}],
        }
    )


def free_ports(number: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(number)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


@asynccontextmanager
async def running(
    file: Path, *options: str, **variables: str
) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        # As container runtimes start programs.
        *("prlimit", "--nofile=1024:"),
        sys.executable,
        *("-m", "fathom", "run", f"--kubeconfig={file}", *options),
        env={
            **os.environ,
            "POD_NAME": "operator-0",
            "POD_NAMESPACE": "fathom-system",
            "HF_HUB_OFFLINE": "1",
            **variables,
        },
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


@asynccontextmanager
async def operating(
    api: ApiServer,
    folder: Path,
    *,
    health: int = 0,
    metrics: int = 0,
    people: int = 0,
    **variables: str,
) -> AsyncIterator[asyncio.subprocess.Process]:
    file = folder / "kubeconfig"
    ports = (f"--health-port={health}", f"--metrics-port={metrics}", f"--page-port={people}")
    async with served(api) as url, guarded("this run of the operator to end"):
        file.write_text(kubeconfig(url))
        async with running(file, *ports, **variables) as operator:
            yield operator


async def answer(url: str) -> tuple[int, str]:
    async with aiohttp.ClientSession() as session, session.get(url) as found:
        return found.status, await found.text()


async def page(url: str) -> str:
    status, text = await answer(url)
    assert status == 200
    return text


async def leads(api: ApiServer) -> None:
    await until(lambda: api.lease, "an operator that leads")


async def ends_and_gives_its_lease_back(
    operator: asyncio.subprocess.Process, api: ApiServer
) -> None:
    operator.terminate()
    assert await operator.wait() == 0
    assert api.giving_back.is_set()
    assert "holderIdentity" not in api.lease["spec"]


async def test_it_leads_before_it_acts_is_watched_and_ends_at_a_signal(tmp_path: Path) -> None:
    api = ApiServer()
    health, metrics, people = free_ports(3)
    async with operating(api, tmp_path, health=health, metrics=metrics, people=people) as operator:
        await api.watched.wait()
        assert not api.acted_without_lease
        assert api.lease["metadata"]["name"] == "fathom-operator"
        assert api.lease["metadata"]["namespace"] == "fathom-system"
        assert api.lease["spec"]["holderIdentity"] == "operator-0"
        assert await page(f"http://127.0.0.1:{health}/healthz") == "ok, 0 resources\n"
        # Also where a pod has no IPv4.
        shown = await page(f"http://[::1]:{metrics}/metrics")
        assert "fathom_leader" in await page(f"http://127.0.0.1:{metrics}/metrics")
        assert "fathom_reconcile_seconds" in shown
        assert "fathom_leader 1.0" in shown.splitlines()
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        assert f"process_max_fds {most:.1f}" in shown.splitlines()
        assert "This operator manages no SpeculativeDeployment yet" in await page(
            f"http://127.0.0.1:{people}/"
        )
        await ends_and_gives_its_lease_back(operator, api)


async def test_a_proxy_that_leads_to_the_hub_is_no_way_to_the_api_server(tmp_path: Path) -> None:
    (closed,) = free_ports(1)
    api, proxy = ApiServer(), f"http://127.0.0.1:{closed}"
    async with operating(api, tmp_path, HTTP_PROXY=proxy, HTTPS_PROXY=proxy) as operator:
        await api.watched.wait()
        assert api.lists
        await ends_and_gives_its_lease_back(operator, api)


async def test_it_gives_its_lease_back_while_somebody_looks_at_its_page(tmp_path: Path) -> None:
    """Kopf waits for 5 s for every task that has begun since it runs, and then ends a viewer's."""
    api = ApiServer()
    api.may_give_back.clear()
    (people,) = free_ports(1)
    async with operating(api, tmp_path, people=people) as operator:
        await api.watched.wait()
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=1)) as viewer:
            url = f"http://127.0.0.1:{people}/"
            async with viewer.get(url) as shown:
                await shown.read()
            # Its connection is kept.
            operator.terminate()
            await api.giving_back.wait()
            async with viewer.get(url) as shown:
                assert shown.status == 503
            api.may_give_back.set()
            assert await operator.wait() == 0


async def test_it_gives_its_lease_back_before_it_knows_what_there_is(tmp_path: Path) -> None:
    """A cluster's children take a while to list, and a signal may come then."""
    api = ApiServer()
    api.may_list.clear()
    async with operating(api, tmp_path) as operator:
        await leads(api)
        await ends_and_gives_its_lease_back(operator, api)


async def test_it_is_ready_once_it_could_take_over_at_once(tmp_path: Path) -> None:
    """So that a rolling update ends the former operator only then."""
    api = ApiServer()
    api.may_list.clear()
    (health,) = free_ports(1)
    url = f"http://127.0.0.1:{health}"
    async with operating(api, tmp_path, health=health):
        await leads(api)
        assert await page(f"{url}/healthz") == "ok, 0 resources\n"
        assert await answer(f"{url}/readyz") == (503, "not all children are listed\n")
        api.may_list.set()
        await api.watched.wait()
        assert await page(f"{url}/readyz") == "ok\n"


async def test_a_second_signal_cuts_nothing_off(loops: Loops) -> None:
    """Somebody without patience; the lease would stand until it runs out."""
    begun, second, done = asyncio.Event(), asyncio.Event(), asyncio.Event()
    told_to_leave: list[None] = []

    async def operate() -> None:
        ender(loops, lambda: told_to_leave.append(None))()
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.Event().wait()
        finally:
            begun.set()
            await second.wait()
            await turns()  # it is heeded, and would cut this off
            done.set()

    operating = asyncio.create_task(operate())
    await begun.wait()
    os.kill(os.getpid(), signal.SIGTERM)
    second.set()
    await asyncio.gather(operating, return_exceptions=True)
    assert operating.cancelled()
    assert done.is_set()
    assert len(told_to_leave) == 1
    assert loops.closed


async def test_a_signal_after_the_lease_was_lost_makes_it_no_good_end(loops: Loops) -> None:
    """Its exit code would say that it was told to stop, while somebody looks for why it ended."""
    lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    leaving, left, told_to_leave = asyncio.Event(), asyncio.Event(), []

    async def forever() -> None:
        await asyncio.Event().wait()

    async def operate() -> None:
        ender(loops, lambda: None)()
        work = partial(at_work, loops, forever, lambda: told_to_leave.append(None))
        try:
            await work_while_held(lost, work, lease="fathom/operator", holds=lambda: True)
        finally:
            leaving.set()
            await left.wait()

    operating = asyncio.create_task(operate())
    await asyncio.sleep(0)
    lost.set_result(None)
    await leaving.wait()
    # Whatever hangs from here on, no signal would be heeded.
    assert len(told_to_leave) == 1
    os.kill(os.getpid(), signal.SIGTERM)
    await turns()
    left.set()
    with pytest.raises(LeadershipLostError):
        await operating
