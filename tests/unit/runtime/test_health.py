import asyncio
import socket
from collections.abc import AsyncIterator

import aiohttp
import pytest

from fathom.runtime.loop_registry import STUCK_AFTER_S, Loops
from fathom.runtime.main import serve_health
from support.loop_harness import KEY, LoopHarness


@pytest.fixture
async def url(loops: Loops) -> AsyncIterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    runner = await serve_health(loops, lambda: True, port)
    yield f"http://127.0.0.1:{port}/healthz"
    await runner.cleanup()


async def answer(url: str) -> tuple[int, str]:
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        return response.status, await response.text()


async def test_an_operator_that_stands_by_is_well(url: str) -> None:
    assert await answer(url) == (200, "ok, 0 resources\n")


async def test_a_stuck_loop_is_named(harness: LoopHarness, loops: Loops, url: str) -> None:
    async def hang(*_: object) -> None:
        await asyncio.Event().wait()

    harness.kube.get = hang  # type: ignore[method-assign,assignment]
    loops.seen(KEY)
    harness.clock.at_s += STUCK_AFTER_S + 1
    assert await answer(url) == (503, "stuck: llm/kimi\n")
