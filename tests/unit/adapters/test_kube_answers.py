"""What stands between the operator and the API server may answer in its place."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from kubernetes.aio.client import ApiClient, Configuration

from fathom.adapters.kube import Kube
from fathom.adapters.ports import KubeError
from fathom.core.cluster.kinds import CONFIG_MAP, DEPLOYMENT

SIGN_IN = "<html>Sign in to continue</html>"


@asynccontextmanager
async def kube_before(status: int, body: str) -> AsyncIterator[Kube]:
    """A client of a server that answers all requests alike."""

    async def answer(_: web.Request) -> web.Response:
        return web.Response(status=status, text=body)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    async with (
        TestServer(app, host="127.0.0.1") as server,
        ApiClient(Configuration(host=str(server.make_url("")).rstrip("/"))) as client,
    ):
        yield Kube(client)


@pytest.mark.parametrize("body", [SIGN_IN, "", "[]", '"OK"', '{"status": "ok"}'])
async def test_what_is_no_list_is_not_an_empty_one(body: str) -> None:
    async with kube_before(200, body) as kube:
        with pytest.raises(KubeError, match="is not an API server's") as failed:
            await kube.select(DEPLOYMENT, "llm", "")
        assert failed.value.transient
        with pytest.raises(KubeError):
            await kube.named(CONFIG_MAP, "llm", "kimi-tuning")
        with pytest.raises(KubeError):
            await kube.events("llm", "kimi", "FailedCreate")


@pytest.mark.parametrize("body", [SIGN_IN, "", "[]", '"OK"'])
async def test_what_is_no_object_is_none(body: str) -> None:
    async with kube_before(200, body) as kube:
        with pytest.raises(KubeError, match="is not an API server's"):
            await kube.get(CONFIG_MAP, "llm", "kimi-tuning")
        with pytest.raises(KubeError):
            await kube.served()


@pytest.mark.parametrize("items", ["[]", "null"])
async def test_an_empty_list_is_one(items: str) -> None:
    async with kube_before(200, f'{{"kind": "DeploymentList", "items": {items}}}') as kube:
        assert await kube.select(DEPLOYMENT, "llm", "") == ()


@pytest.mark.parametrize("body", [SIGN_IN, "", "[]", '"OK"', '{"message": 7}'])
async def test_an_error_keeps_its_status_whatever_it_says(body: str) -> None:
    async with kube_before(502, body) as kube:
        with pytest.raises(KubeError) as failed:
            await kube.select(DEPLOYMENT, "llm", "")
        assert failed.value.status == 502
