"""A status whose fields the served CRD does not all declare, on an API server that says so.

Up to some release a server-side apply drops them; that is asked of a real one in
`tests/contract/test_kube_contract.py`. Kubernetes 1.36 refuses the apply as a whole.
"""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from kubernetes.aio.client import ApiClient, Configuration

from fathom.adapters.kube import Kube
from fathom.adapters.ports import KubeError
from fathom.cluster.kinds import SPECULATIVE_DEPLOYMENT
from fathom.cluster.manifest import Seen

SEEN = Seen("uid-1", "7")
NEW = {"pace", "why"}
"""What the CRD has no fields for."""
KNOWN = {"ready": "1/2", "conditions": [{"type": "Ready"}, {"type": "Degraded"}]}
STATUS = {
    "ready": "1/2",
    "pace": {"seconds": 3},
    "conditions": [{"type": "Ready", "why": "new"}, {"type": "Degraded"}],
}


def pruned(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: pruned(each) for name, each in value.items() if name not in NEW}
    return [pruned(each) for each in value] if isinstance(value, list) else value


class OlderCrd:
    """Refuses to apply what is not declared, and drops it from other patches."""

    def __init__(self, refuses: int = 0) -> None:
        self.refuses = refuses
        """All that is written, with this code; 0: none of that."""
        self.asked: list[str] = []
        """Content type and query of each request."""
        self.stored: dict[str, Any] = {}

    async def answer(self, request: web.Request) -> web.Response:
        dry = request.query.get("dryRun") == "All"
        self.asked.append("dry run" if dry else request.content_type)
        body = json.loads(await request.text())
        if self.refuses:
            return web.json_response({"message": f"not so: {self.asked[-1]}"}, status=self.refuses)
        if request.content_type == "application/apply-patch+yaml":
            if pruned(body["status"]) != body["status"]:
                message = ".status.pace: field not declared in schema"
                return web.json_response({"message": message}, status=500)
            assert body["metadata"] | SEEN.in_metadata() == body["metadata"]
        found = {**body, "status": pruned(body["status"])}
        if not dry:
            self.stored = found
        return web.json_response(found)


@asynccontextmanager
async def kube_of(crd: OlderCrd) -> AsyncIterator[Kube]:
    app = web.Application()
    app.router.add_patch("/{path:.*}", crd.answer)
    async with (
        TestServer(app, host="127.0.0.1") as server,
        ApiClient(Configuration(host=str(server.make_url("")).rstrip("/"))) as client,
    ):
        yield Kube(client)


async def write(kube: Kube, status: dict[str, Any]) -> Any:
    manifest: Any = {"metadata": {"namespace": "llm", "name": "kimi"}, "status": status}
    return await kube.apply(SPECULATIVE_DEPLOYMENT, manifest, SEEN, subresource="status")


async def test_what_the_crd_does_not_declare_is_left_out_of_the_status() -> None:
    crd = OlderCrd()
    async with kube_of(crd) as kube:
        written = await write(kube, STATUS)
    assert written["status"] == KNOWN
    assert crd.stored["status"] == KNOWN


async def test_a_status_that_is_declared_is_sent_once() -> None:
    crd = OlderCrd()
    async with kube_of(crd) as kube:
        await write(kube, KNOWN)
    assert crd.asked == ["application/apply-patch+yaml"]


@pytest.mark.parametrize("status", [400, 422, 500])
async def test_a_status_that_is_refused_for_something_else_is_told_as_it_was(status: int) -> None:
    """Such as by a webhook."""
    async with kube_of(OlderCrd(refuses=status)) as kube:
        with pytest.raises(KubeError, match=r"not so: application/apply-patch\+yaml") as refused:
            await write(kube, STATUS)
    assert refused.value.status == status


@pytest.mark.parametrize("status", [403, 404, 409])
async def test_what_no_schema_is_behind_is_asked_no_further(status: int) -> None:
    crd = OlderCrd(refuses=status)
    async with kube_of(crd) as kube:
        with pytest.raises(KubeError):
            await write(kube, STATUS)
    assert len(crd.asked) == 1
