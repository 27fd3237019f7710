"""A real Prometheus for one test."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from pydantic import JsonValue

from fathom_local.tools.prometheus import prometheus_process

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
    with prometheus_process(250, jobs, folder) as url:
        async with aiohttp.ClientSession() as session:
            await eventually(lambda: _ready(session, url), "Prometheus to answer")
        yield url


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
