"""A real Prometheus for one test."""

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
import yaml
from pydantic import JsonValue

from fathom_local.tools.prometheus import find_prometheus

DEADLINE_S = 20.0


@asynccontextmanager
async def running_prometheus(
    jobs: Sequence[Mapping[str, JsonValue]], folder: Path
) -> AsyncIterator[str]:
    """One that scrapes four times a second; its URL.

    Args:
        jobs: its `scrape_configs`.
        folder: for its files.
    """
    binary = find_prometheus()
    config = folder / "prometheus.yml"
    config.write_text(
        yaml.safe_dump(
            {
                "global": {"scrape_interval": "250ms", "scrape_timeout": "250ms"},
                "scrape_configs": [*map(dict, jobs)],
            }
        )
    )
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    log = (folder / "prometheus.log").open("wb")
    process = await asyncio.create_subprocess_exec(
        binary,
        f"--config.file={config}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
        stdout=log,
        stderr=log,
    )
    try:
        async with aiohttp.ClientSession() as session:
            await eventually(lambda: _ready(session, url), "Prometheus to answer")
        yield url
    finally:
        process.terminate()
        await process.wait()
        log.close()


async def eventually(
    check: Callable[[], Awaitable[bool]], what: str, deadline_s: float = DEADLINE_S
) -> None:
    """Wait until something holds."""
    end = time.monotonic() + deadline_s
    while not await check():
        if time.monotonic() > end:
            pytest.fail(f"Waited {deadline_s:g} s in vain for {what}.")
        await asyncio.sleep(0.05)


async def _ready(session: aiohttp.ClientSession, url: str) -> bool:
    try:
        async with session.get(f"{url}/-/ready") as response:
            return response.status == 200
    except aiohttp.ClientError:
        return False
