"""A real Prometheus for one test."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
from pydantic import JsonValue

from local_cluster.prometheus import prometheus_process
from support.waiting import until


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
            await until(lambda: _ready(session, url), "Prometheus answers")
        yield url


async def _ready(session: aiohttp.ClientSession, url: str) -> bool:
    try:
        async with session.get(f"{url}/-/ready") as response:
            return response.status == 200
    except aiohttp.ClientError:
        return False
