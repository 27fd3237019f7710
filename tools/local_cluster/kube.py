"""The Kubernetes API in plain dicts, over the official client's transport.

Typed responses would be validated field by field on each event; whoever needs types parses the
little it reads into models of its own.
"""

import asyncio
import json
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any

import aiohttp
import structlog
from kubernetes.aio.client import ApiClient, Configuration
from kubernetes.aio.client.exceptions import ApiException
from kubernetes.aio.config import load_kube_config

from fathom.adapters.kube_answers import again_after_s

REQUEST_SECONDS = 60.0
WATCH_SECONDS = 300
RETRY_SECONDS = 1.0
BUSY_ATTEMPTS = 10
"""As Kubernetes' own clients: so often a request is sent that is answered with "too many"."""
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"

Object = dict[str, Any]
Key = tuple[str, str]
"""Namespace (empty for what has none) and name."""

log = structlog.get_logger()


@asynccontextmanager
async def connect(kubeconfig: Path) -> AsyncIterator[ApiClient]:
    """An API client for a kubeconfig, closed at the end."""
    # It is on this machine, whatever proxy leads out of it.
    configuration = Configuration(client_session_kwargs={"trust_env": False})
    await load_kube_config(  # type: ignore[no-untyped-call]
        config_file=str(kubeconfig), client_configuration=configuration
    )
    configuration.connection_pool_maxsize = 100
    async with ApiClient(configuration) as client:
        yield client


@dataclass(frozen=True, slots=True)
class KubeApi:
    """Requests by path."""

    client: ApiClient
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep

    async def request(
        self,
        method: str,
        path: str,
        *,
        body: Object | None = None,
        query: Mapping[str, str] | None = None,
        content_type: str = "application/json",
    ) -> Object:
        """One request, one JSON document.

        Raises:
            ApiException: the API server refused; `status` says how.
            aiohttp.ClientError, TimeoutError: it could not be reached.
        """
        response = await self._send(
            method, path, body=body, query=query, content_type=content_type, limit=REQUEST_SECONDS
        )
        document: Object = json.loads(await response.read())
        return document

    async def watch(
        self, path: str, resource_version: str, selector: str = ""
    ) -> AsyncIterator[tuple[str, Object]]:
        """Event types and objects, until the API server ends the stream.

        Args:
            path: of a kind.
            resource_version: after which to begin.
            selector: of labels; empty: all.

        Raises:
            ApiException: as `request`; 410 when the version is too old to continue from.
        """
        query = {
            "watch": "true",
            "resourceVersion": resource_version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(WATCH_SECONDS),
            "labelSelector": selector,
        }
        limit = WATCH_SECONDS + REQUEST_SECONDS
        response = await self._send("GET", path, query=query, limit=limit)
        try:
            async for line in response.content:
                event = json.loads(line)
                if event["type"] == "ERROR":
                    status = event["object"]
                    raise ApiException(status=status.get("code"), reason=status.get("message"))
                yield event["type"], event["object"]
        finally:
            response.close()

    async def _send(
        self,
        method: str,
        path: str,
        *,
        limit: float,
        body: Object | None = None,
        query: Mapping[str, str] | None = None,
        content_type: str = "application/json",
    ) -> aiohttp.ClientResponse:
        serialized = await self.client.param_serialize(
            method,
            path,
            query_params=list((query or {}).items()),
            header_params={"Accept": "application/json", "Content-Type": content_type},
            body=body,
            auth_settings=["BearerToken"],
        )
        for attempt in range(1, BUSY_ATTEMPTS + 1):
            answer = await self.client.call_api(
                *serialized, _request_timeout=aiohttp.ClientTimeout(total=limit)
            )
            response: aiohttp.ClientResponse = answer.response
            # To an eviction the same status says that a budget forbids it.
            may_wait = not path.endswith("/eviction")
            wait_s = again_after_s(response.status, response.headers) if may_wait else None
            if wait_s is None or attempt == BUSY_ATTEMPTS:
                break
            response.close()
            await self.sleep(wait_s)
        if not response.ok:
            text = await response.text()
            raise ApiException(status=response.status, reason=text)
        return response


def is_status(error: ApiException, status: HTTPStatus) -> bool:
    """Whether an error is this refusal."""
    return bool(error.status == status)


def key_of(item: Object) -> Key:
    """Namespace and name."""
    return item["metadata"].get("namespace", ""), item["metadata"]["name"]


@dataclass(slots=True)
class Mirror:
    """What the API server holds of one resource, kept up to date by a watch."""

    api: KubeApi
    path: str
    changed: Callable[[Key, Object | None], None] | None = None
    """Called with each change; None stands for a deleted object."""
    selector: str = ""
    """Selector of labels; empty: all."""
    items: dict[Key, Object] = field(default_factory=dict)
    synced: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> None:
        """Lists, watches, and starts over when that ends; returns never."""
        while True:
            try:
                version = await self._list()
                while True:
                    version = await self._follow(version)
            except (
                ApiException,
                aiohttp.ClientError,
                TimeoutError,
                OSError,
                # A stream that was cut in the middle of a line, or an object nobody can make sense
                # of: the others still need to be followed.
                ValueError,
            ) as error:
                expired = isinstance(error, ApiException) and is_status(error, HTTPStatus.GONE)
                if not expired:
                    log.warning("watch interrupted", path=self.path, error=str(error))
                    await asyncio.sleep(RETRY_SECONDS * random.uniform(0.5, 1.5))  # noqa: S311

    async def _list(self) -> str:
        listed = await self.api.request("GET", self.path, query={"labelSelector": self.selector})
        # Items of a list carry no kind of their own.
        current = {key_of(item): item for item in listed["items"]}
        for key in self.items.keys() - current.keys():
            self._set(key, None)
        for key, item in current.items():
            if self._version(self.items.get(key)) != self._version(item):
                self._set(key, item)
        self.synced.set()
        version: str = listed["metadata"]["resourceVersion"]
        return version

    async def _follow(self, version: str) -> str:
        async for kind, item in self.api.watch(self.path, version, self.selector):
            version = item["metadata"]["resourceVersion"]
            if kind == "DELETED":
                self._set(key_of(item), None)
            elif kind != "BOOKMARK":
                self._set(key_of(item), item)
        return version

    def _set(self, key: Key, item: Object | None) -> None:
        if item is None:
            self.items.pop(key, None)
        else:
            self.items[key] = item
        if self.changed is not None:
            self.changed(key, item)

    @staticmethod
    def _version(item: Object | None) -> str | None:
        return None if item is None else item["metadata"]["resourceVersion"]


async def retry_until_done(attempt: Callable[[], Awaitable[None]]) -> None:
    """Repeats an idempotent write until the API server took it, or its object is gone.

    A conflict counts as gone: the object of that name is another one now.
    """
    pause = RETRY_SECONDS
    while True:
        try:
            await attempt()
        except ApiException as error:
            if error.status in (HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT):
                return
            log.warning("write refused", status=error.status, reason=error.reason)
            if error.status in (HTTPStatus.BAD_REQUEST, HTTPStatus.UNPROCESSABLE_ENTITY):
                # It will not become valid by being sent again.
                return
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            log.warning("API server unreachable", error=str(error))
        else:
            return
        await asyncio.sleep(pause)
        pause = min(pause * 2, 10.0)
