"""An OCI registry on loopback that keeps what is pushed, as far as Helm asks one.

Source: the OCI distribution specification, "Push" and "Pull".
"""

import hashlib
import json
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from aiohttp.test_utils import TestServer


@dataclass
class OciRegistry:
    """What was pushed."""

    blobs: dict[str, bytes] = field(default_factory=dict)
    """By digest."""
    manifests: dict[tuple[str, str], tuple[str, bytes]] = field(default_factory=dict)
    """Media type and text, by repository and by tag or digest."""
    address: str = ""

    def manifest(self, repository: str, tag: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.manifests[repository, tag][1])
        return found

    def application(self) -> web.Application:
        application = web.Application()
        application.add_routes(
            [
                web.get("/v2/", self._is_one),
                web.post("/v2/{name:.+}/blobs/uploads/", self._begin),
                web.put("/v2/{name:.+}/blobs/uploads/{upload}", self._upload),
                web.get("/v2/{name:.+}/blobs/{digest}", self._blob),
                web.put("/v2/{name:.+}/manifests/{reference}", self._put_manifest),
                web.get("/v2/{name:.+}/manifests/{reference}", self._manifest),
                web.get("/v2/{name:.+}/tags/list", self._tags),
            ]
        )
        return application

    async def _is_one(self, _: web.Request) -> web.Response:
        return web.json_response({})

    async def _begin(self, request: web.Request) -> web.Response:
        place = f"{request.path}{uuid.uuid4().hex}"
        return web.Response(status=202, headers={"Location": place})

    async def _upload(self, request: web.Request) -> web.Response:
        content = await request.read()
        digest = _digest(content)
        if request.query["digest"] != digest:
            raise web.HTTPBadRequest
        self.blobs[digest] = content
        return web.Response(status=201, headers={"Docker-Content-Digest": digest})

    async def _blob(self, request: web.Request) -> web.Response:
        digest = request.match_info["digest"]
        if digest not in self.blobs:
            raise web.HTTPNotFound
        headers = {"Docker-Content-Digest": digest}
        return web.Response(
            body=self.blobs[digest], content_type="application/octet-stream", headers=headers
        )

    async def _put_manifest(self, request: web.Request) -> web.Response:
        text, name = await request.read(), request.match_info["name"]
        digest = _digest(text)
        for reference in (request.match_info["reference"], digest):
            self.manifests[name, reference] = (request.content_type, text)
        return web.Response(status=201, headers={"Docker-Content-Digest": digest})

    async def _manifest(self, request: web.Request) -> web.Response:
        key = request.match_info["name"], request.match_info["reference"]
        if key not in self.manifests:
            raise web.HTTPNotFound
        kind, text = self.manifests[key]
        headers = {"Docker-Content-Digest": _digest(text)}
        return web.Response(body=text, content_type=kind, headers=headers)

    async def _tags(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        tags = [tag for where, tag in self.manifests if where == name and ":" not in tag]
        return web.json_response({"name": name, "tags": tags})


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


@asynccontextmanager
async def oci_registry() -> AsyncIterator[OciRegistry]:
    registry = OciRegistry()
    server = TestServer(registry.application())
    await server.start_server()
    registry.address = f"{server.host}:{server.port}"
    try:
        yield registry
    finally:
        await server.close()
