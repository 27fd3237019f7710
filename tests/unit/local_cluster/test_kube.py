"""A busy API server is asked again, as often as it says."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from kubernetes.aio.client import ApiClient, Configuration
from kubernetes.aio.client.exceptions import ApiException

from local_cluster.kube import BUSY_ATTEMPTS, KubeApi

POD = "/api/v1/namespaces/llm/pods/kimi"


async def no_sleep(_seconds: float) -> None:
    """Nothing changes meanwhile."""


@asynccontextmanager
async def busy(times: int, asked: list[str], **headers: str) -> AsyncIterator[KubeApi]:
    """A server that has too many requests for so many answers, and a client that need not wait."""

    async def answer(request: web.Request) -> web.Response:
        asked.append(request.path)
        if len(asked) <= times:
            return web.json_response({}, status=429, headers=headers)
        return web.json_response({"kind": "Pod"})

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    async with TestServer(app, host="127.0.0.1") as server:
        url = str(server.make_url("")).rstrip("/")
        async with ApiClient(Configuration(host=url)) as client:
            yield KubeApi(client, sleep=no_sleep)


async def test_a_busy_server_is_asked_again() -> None:
    asked: list[str] = []
    async with busy(2, asked, **{"Retry-After": "0"}) as api:
        assert await api.request("GET", POD) == {"kind": "Pod"}
    assert asked == [POD] * 3


async def test_not_for_ever() -> None:
    asked: list[str] = []
    async with busy(1000, asked, **{"Retry-After": "0"}) as api:
        with pytest.raises(ApiException, match="429"):
            await api.request("GET", POD)
    assert len(asked) == BUSY_ATTEMPTS


@pytest.mark.parametrize(
    ("path", "headers"), [(POD, {}), (f"{POD}/eviction", {"Retry-After": "0"})]
)
async def test_not_where_the_server_does_not_ask_for_it_or_a_budget_forbids_it(
    path: str, headers: dict[str, str]
) -> None:
    asked: list[str] = []
    async with busy(1, asked, **headers) as api:
        with pytest.raises(ApiException, match="429"):
            await api.request("POST", path, body={})
    assert asked == [path]
