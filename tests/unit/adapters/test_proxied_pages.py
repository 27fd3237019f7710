"""Pages of pods through an API server: whoever runs a pod decides what comes back."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from kubernetes.aio.client import Configuration

from fathom.adapters import kube_config
from fathom.adapters.http import BadAnswerError
from fathom.adapters.pod_metrics import ForbiddenPageError, ProxiedPages
from fathom.adapters.ports import PodEndpoint
from support import bad_server
from support.bad_server import SECRET, Answer, answering, saying
from support.waiting import GUARD_S

MOST_BYTES = 1 << 20
SHORT_S = 0.6
"""Length of a time-out that is waited for."""
WAITED_OUT = (bad_server.dripping, bad_server.silent)
POD = PodEndpoint(namespace="llm", pod="kimi-0", ip="10.0.0.7", port=8000)


@asynccontextmanager
async def pages_of(url: str, *, timeout_s: float = GUARD_S) -> AsyncIterator[ProxiedPages]:
    async with kube_config.client(Configuration(host=url), redirected=False) as api:
        yield ProxiedPages(api, timeout_s=timeout_s, largest_page_bytes=MOST_BYTES)


async def test_it_asks_the_api_server_for_the_pods_page() -> None:
    async with answering(saying(b"vllm:x 1\n")) as server, pages_of(server.url) as pages:
        page = await pages.page(POD)

    assert page == "vllm:x 1\n"
    assert server.asked == ["/api/v1/namespaces/llm/pods/kimi-0:8000/proxy/metrics"]


@pytest.mark.parametrize(
    ("answer", "cause"),
    [
        (bad_server.endless, "larger than 1048576 bytes"),
        (bad_server.endless_headers, "is not HTTP"),
        (bad_server.dripping, "no answer within 0.6 s"),
        (bad_server.silent, "no answer within 0.6 s"),
        (bad_server.looping, "HTTP status 302, and redirects are not followed"),
        (bad_server.bomb, "its answer comes packed"),
        (bad_server.failing, "it answers with HTTP status 503"),
        (bad_server.breaking_off, "it broke off"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
async def test_a_bad_answer_is_left_in_time_and_never_quoted(answer: Answer, cause: str) -> None:
    timeout_s = SHORT_S if answer in WAITED_OUT else GUARD_S
    async with (
        answering(answer) as server,
        pages_of(server.url, timeout_s=timeout_s) as pages,
    ):
        with pytest.raises(BadAnswerError, match=cause) as refused:
            await asyncio.wait_for(pages.page(POD), GUARD_S)

    assert SECRET not in str(refused.value)
    # Some megabytes are on their way in the buffers of both sides.
    assert server.sent_bytes < MOST_BYTES + (16 << 20)
    assert len(server.asked) <= 1


async def test_a_pod_leads_to_no_other_server() -> None:
    async with (
        answering(bad_server.failing) as other,
        answering(bad_server.leading_to(other)) as server,
        pages_of(server.url) as pages,
    ):
        with pytest.raises(BadAnswerError, match="HTTP status 307"):
            await pages.page(POD)

    assert other.asked == []


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ('{"kind": "Status", "message": "no."}', "right to `get` `pods/proxy` in namespace llm"),
        ("the pod's own refusal", "^it answers with HTTP status 403$"),
    ],
)
async def test_a_right_that_is_lacking_is_named(body: str, expected: str) -> None:
    async def refuse(_: web.Request) -> web.Response:
        return web.Response(status=403, text=body)

    app = web.Application()
    app.router.add_get("/{path:.*}", refuse)
    async with (
        TestServer(app, host="127.0.0.1") as server,
        pages_of(str(server.make_url(""))) as it,
    ):
        with pytest.raises(BadAnswerError, match=expected) as refused:
            await it.page(POD)

    assert isinstance(refused.value, ForbiddenPageError) == ("kind" in body)
