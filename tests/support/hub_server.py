"""A server on loopback that answers like the Hugging Face Hub, and writes down what was asked.

As far as a look-up and a download need it: files by `resolve`, with a redirect for weights, and a
repository's listings. Source: https://huggingface.co/docs/hub/api and what huggingface_hub sends.
"""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

from aiohttp import web
from aiohttp.test_utils import TestServer

COMMIT: Final = "0123456789abcdef0123456789abcdef01234567"
TOKEN: Final = "hf_right"
_PIECE: Final = 1 << 16


@dataclass(frozen=True)
class Repository:
    """What one repository holds."""

    files: dict[str, bytes] = field(default_factory=dict)
    gated: bool = False
    revisions: tuple[str, ...] = ("main",)


@dataclass
class HubServer:
    """The server's repositories, and its log."""

    repositories: dict[str, Repository]
    ignores_ranges: bool = False
    """As some mirrors do: the whole file comes back."""
    commit: str = COMMIT
    """That every revision means."""
    broken: bool = False
    """Answers everything with 503."""
    listing: str = ""
    """What it says of every repository's files instead."""
    held: dict[str, int] = field(default_factory=dict)
    """Files that are sent up to so many bytes, and no further until `released`."""
    released: asyncio.Event = field(default_factory=asyncio.Event)
    requests: list[str] = field(default_factory=list)
    """Method and path of each request."""
    sent_bytes: dict[str, int] = field(default_factory=dict)
    """Bytes of bodies by file name."""
    user_agents: set[str] = field(default_factory=set)
    endpoint: str = ""

    async def _resolve(self, request: web.Request) -> web.StreamResponse:
        self._note(request)
        name, revision, path = (request.match_info[key] for key in ("id", "revision", "path"))
        repository = self._admitted(request, name, revision)
        content = repository.files.get(path)
        if content is None:
            raise _refusal(web.HTTPNotFound, "EntryNotFound", {"X-Repo-Commit": COMMIT})
        headers = _identity(content)
        if path.endswith(".safetensors"):
            raise web.HTTPFound(f"/cdn/{name}/{path}", headers=headers)
        if request.method == "GET":
            self._count(path, len(content))
        return web.Response(body=content, headers=headers)

    async def _cdn(self, request: web.Request) -> web.StreamResponse:
        self._note(request)
        path = request.match_info["path"]
        content = self.repositories[request.match_info["id"]].files[path]
        part = request.http_range
        if self.ignores_ranges or part.stop is None:
            # The client follows a redirect on the same host, and wants the file's identity there.
            headers = {"Content-Length": str(len(content)), **_identity(content)}
            response = web.StreamResponse(headers=headers)
            await response.prepare(request)
            if request.method == "HEAD":
                return response
            for start in range(0, len(content), _PIECE):
                if start >= self.held.get(path, len(content)):
                    await self.released.wait()
                try:
                    await response.write(content[start : start + _PIECE])
                except ConnectionError:
                    return response
                self._count(path, min(_PIECE, len(content) - start))
            return response
        body = content[part]
        self._count(path, len(body))
        return web.Response(body=body, status=206)

    async def _listing(self, request: web.Request) -> web.StreamResponse:
        self._note(request)
        name = request.match_info["id"]
        repository = self._admitted(request, name, request.match_info.get("revision", "main"))
        if self.listing:
            return web.Response(text=self.listing, content_type="application/json")
        siblings = [
            {"rfilename": path, "size": len(content)} for path, content in repository.files.items()
        ]
        return web.json_response({"id": name, "sha": self.commit, "siblings": siblings})

    async def _tree(self, request: web.Request) -> web.StreamResponse:
        self._note(request)
        name, revision = request.match_info["id"], request.match_info["revision"]
        files = self._admitted(request, name, revision).files
        return web.json_response(
            [
                {
                    "type": "file",
                    "path": path,
                    "size": len(content),
                    "oid": _digest(content),
                }
                for path, content in files.items()
            ]
        )

    def _admitted(self, request: web.Request, name: str, revision: str) -> Repository:
        if self.broken:
            raise web.HTTPServiceUnavailable
        repository = self.repositories.get(name)
        if repository is None:
            raise _refusal(web.HTTPNotFound, "RepoNotFound")
        if repository.gated and request.headers.get("Authorization") != f"Bearer {TOKEN}":
            raise _refusal(web.HTTPForbidden, "GatedRepo")
        if revision not in {*repository.revisions, COMMIT}:
            raise _refusal(web.HTTPNotFound, "RevisionNotFound")
        return repository

    def _note(self, request: web.Request) -> None:
        self.requests.append(f"{request.method} {request.path}")
        self.user_agents.add(request.headers["User-Agent"])

    def _count(self, path: str, size: int) -> None:
        self.sent_bytes[path] = self.sent_bytes.get(path, 0) + size


def _identity(content: bytes) -> dict[str, str]:
    """Headers by which a client knows a file again."""
    etag = f'"{_digest(content)}"'
    return {
        "X-Repo-Commit": COMMIT,
        "ETag": etag,
        "X-Linked-Etag": etag,
        "X-Linked-Size": str(len(content)),
    }


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _refusal(
    kind: type[web.HTTPException], code: str, headers: dict[str, str] | None = None
) -> web.HTTPException:
    return kind(headers={"X-Error-Code": code} | (headers or {}))


@asynccontextmanager
async def serving(hub: HubServer, host: str = "127.0.0.1") -> AsyncIterator[HubServer]:
    """The hub on a free port of an address, until the end of the block."""
    app = web.Application()
    app.router.add_get("/cdn/{id:[^/]+/[^/]+}/{path:.+}", hub._cdn)
    app.router.add_get("/api/models/{id:[^/]+/[^/]+}", hub._listing)
    app.router.add_get("/api/models/{id:[^/]+/[^/]+}/revision/{revision}", hub._listing)
    app.router.add_get("/api/models/{id:[^/]+/[^/]+}/tree/{revision}", hub._tree)
    app.router.add_get("/{id:[^/]+/[^/]+}/resolve/{revision}/{path:.+}", hub._resolve)
    async with TestServer(app, host=host) as server:
        hub.endpoint = str(server.make_url("")).rstrip("/")
        yield hub
