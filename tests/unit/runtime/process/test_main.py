"""`fathom run` as its pod runs it: it leads before it acts, is watched, and ends at a signal."""

import asyncio
import os
import resource
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import yaml

from support.api_server import ApiServer, served


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
async def running(file: Path, *options: str) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        # As container runtimes start programs.
        *("prlimit", "--nofile=1024:"),
        sys.executable,
        *("-c", "from fathom.cli import app; app()", "run", f"--kubeconfig={file}", *options),
        env={
            **os.environ,
            "POD_NAME": "operator-0",
            "POD_NAMESPACE": "fathom-system",
            "HF_HUB_OFFLINE": "1",
        },
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def page(url: str) -> str:
    async with aiohttp.ClientSession(raise_for_status=True) as session, session.get(url) as answer:
        return await answer.text()


async def test_it_leads_before_it_acts_is_watched_and_ends_at_a_signal(tmp_path: Path) -> None:
    api, file = ApiServer(), tmp_path / "kubeconfig"
    health, metrics, people = free_ports(3)
    async with served(api) as url, asyncio.timeout(60):
        file.write_text(kubeconfig(url))
        ports = (
            f"--health-port={health}",
            f"--metrics-port={metrics}",
            f"--page-port={people}",
        )
        async with running(file, *ports) as operator:
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
            assert "0 in all" in await page(f"http://127.0.0.1:{people}/")
            operator.terminate()
            assert await operator.wait() == 0
