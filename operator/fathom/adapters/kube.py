"""The Kubernetes API over `kubernetes.aio`: raw requests, plain manifests, a timeout on each.

The generated client's typed responses are validated against one version's models and refuse the
fields of newer servers, so only its transport, its authentication and its URLs are used.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any, Final, cast

import aiohttp
from kubernetes.aio.client import ApiClient
from kubernetes.aio.client.exceptions import ApiException
from kubernetes.aio.client.rest import RESTResponse
from pydantic import JsonValue

from fathom.adapters.http import NoTurnError, turn
from fathom.adapters.kube_answers import (
    OK,
    again_after_s,
    answer_of,
    decoded,
    discover,
    items_of,
    kept,
    no_answer,
    path_of,
    refusal,
    watch_event,
    with_metadata,
)
from fathom.adapters.ports import EventType, KubeError, Page, WatchEvent
from fathom.api import names
from fathom.cluster.kinds import EVENT, Kind, ServedApis
from fathom.cluster.manifest import Manifest, Seen, place_of

DEFAULT_TIMEOUT_S: Final = 15.0
DEFAULT_SILENT_S: Final = 75.0
"""Most often an API server sends a bookmark about every minute."""
LISTS_AT_ONCE: Final = 16
"""By label, which are two looks at a resource. More of them wait in line before their time begins:
were they to wait for one of the hundred connections, or at the server, that would count as its
time. Its priority and fairness gives a list up to ten seats, of some two hundred that an account
has, and gets, writes and the lease's renewal would stand behind them."""
IN_LINE_S: Final = 120.0
"""That a list may wait for its turn. Less than what makes a loop look stuck: a server that answers
no list must not have the operator ended, whose successor would ask for the same ones."""
_PAGE: Final = 500
"""Objects, as kubectl and client-go ask for."""
_MOST_EVENTS: Final = 10_000
"""About one object, after which no further page is read: hundreds are many for an hour, but whoever
may write events may write any number."""

_JSON: Final = "application/json"
_APPLY: Final = "application/apply-patch+yaml"
_MERGE: Final = "application/merge-patch+json"
_Query = Sequence[tuple[str, str]]
_Serialized = tuple[str, str, dict[str, str], Any, Any]
_MANAGER: Final = ("fieldManager", names.FIELD_MANAGER)
_DRY_RUN: Final = (("fieldManager", "fathom-check"), ("force", "true"), ("dryRun", "All"))
"""By another manager: one that no longer states a field of its own would take it away."""
_NO_VERSION: Final[Mapping[str, JsonValue]] = {"resourceVersion": "1"}
"""No object is ever at this version. So a server-side apply that carries it creates, or is refused
with 409 (docs/design/0022). It owns its fields as later ones do; what a POST wrote, a later apply
cannot take back."""
_NOT_BY_APPLY: Final = frozenset({409, 422, 500})
"""There is one of that name; or, for Services of Kubernetes before 1.23, it is refused as such, or
since it would be invalid together with the one that is there."""
_UNDECLARED: Final = frozenset({400, 422, 500})
"""What a server-side apply may be refused with, among much else, for a field that no schema has."""


class Kube:
    """`KubePort` against a real API server."""

    def __init__(
        self,
        api: ApiClient,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        silent_s: float = DEFAULT_SILENT_S,
        lists_at_once: int = LISTS_AT_ONCE,
        in_line_s: float = IN_LINE_S,
    ) -> None:
        """Borrow a client; the caller closes it.

        Args:
            api: of the API server.
            timeout_s: seconds that a request may take; a list by label, from its turn on.
            silent_s: seconds after which a watch without a sign of life is to be opened again.
            lists_at_once: by label, but for those in pages; fewer than the client has connections.
            in_line_s: seconds that one of them may wait for its turn.
        """
        self._api = api
        self._no_answer = partial(no_answer, str(api.configuration.host), timeout_s=timeout_s)
        self._timeout_s, self._silent_s = timeout_s, silent_s
        self._lists = asyncio.Semaphore(lists_at_once)
        self._in_line_s = in_line_s

    async def get(self, kind: Kind, namespace: str, name: str) -> Manifest | None:
        return await self._unless_missing("GET", path_of(kind, namespace, name))

    async def select(self, kind: Kind, namespace: str, selector: str) -> tuple[Manifest, ...]:
        try:
            async with turn(self._lists, self._in_line_s):
                return await self._listed(kind, namespace, [("labelSelector", selector)])
        except NoTurnError as error:
            waited = f"no turn to list {kind.plural} in {self._in_line_s:g} s"
            raise KubeError(0, f"the API server is too slow: {waited}") from error

    async def named(self, kind: Kind, namespace: str, name: str) -> Manifest | None:
        query = [("fieldSelector", f"metadata.name={name}")]
        return next(iter(await self._listed(kind, namespace, query)), None)

    def pages(self, kind: Kind, namespace: str, selector: str) -> AsyncIterator[Page]:
        return self._pages(kind, namespace, ("labelSelector", selector))

    async def _pages(
        self, kind: Kind, namespace: str, which: tuple[str, str]
    ) -> AsyncGenerator[Page]:
        path, goes_on = path_of(kind, namespace), ""
        while True:
            query = [which, ("limit", str(_PAGE)), ("continue", goes_on)]
            found = await self._request("GET", path, query=[each for each in query if each[1]])
            metadata = cast("Mapping[str, JsonValue]", found.get("metadata") or {})
            yield Page(items_of(kind, path, found), str(metadata.get("resourceVersion", "")))
            goes_on = str(metadata.get("continue") or "")
            if not goes_on:
                return

    async def watch(
        self, kind: Kind, namespace: str, selector: str, since: str, for_s: float
    ) -> AsyncGenerator[WatchEvent]:
        path = path_of(kind, namespace)
        query = [
            ("watch", "true"),
            ("allowWatchBookmarks", "true"),
            ("labelSelector", selector),
            ("resourceVersion", since),
            ("timeoutSeconds", str(max(1, round(for_s)))),
        ]
        async with aclosing(self._lines(path, query)) as lines:
            async for line in lines:
                yield watch_event(path, line) if line else WatchEvent(EventType.BOOKMARK, {}, since)

    async def _lines(self, path: str, query: _Query) -> AsyncGenerator[bytes]:
        """Lines of an answer that continues as long as the server likes; empty: it has begun.

        Silence ends it and is no error: of a kind to which nothing has happened since the API
        server started, it sends no bookmarks either.

        Raises:
            KubeError: the server refuses or does not answer, or the connection broke.
        """
        timeout = aiohttp.ClientTimeout(
            total=None, connect=self._timeout_s, sock_read=self._silent_s
        )
        response: aiohttp.ClientResponse | None = None
        try:
            request = await self._serialized("GET", path, query=query)
            response = (await self._asked(request, _request_timeout=timeout)).response
            if response.status not in OK:
                payload: bytes = await response.read()
                raise refusal(response.status, str(response.reason), payload, decoded(payload))
            yield b""
            async for line in response.content:
                yield line
        except TimeoutError as error:
            if response is None:
                raise self._no_answer("GET", path, error=error) from error
        except (aiohttp.ClientError, ApiException, OSError, ValueError) as error:
            raise self._no_answer("GET", path, error=error) from error
        finally:
            if response is not None:
                response.close()

    async def events(self, namespace: str, name: str, reason: str) -> tuple[Manifest, ...]:
        about = f"involvedObject.name={name}{f',reason={reason}' if reason else ''}"
        found: list[Manifest] = []
        # As many as can be: they come in the order of their names, so the first ones are any ones.
        async with aclosing(self._pages(EVENT, namespace, ("fieldSelector", about))) as pages:
            async for page in pages:
                found += page.items
                if len(found) >= _MOST_EVENTS:
                    break
        return tuple(found)

    async def create(self, kind: Kind, manifest: Manifest) -> Manifest:
        namespace, name = place_of(manifest)
        if name:
            try:
                return await self._apply(path_of(kind, namespace, name), manifest, _NO_VERSION)
            except KubeError as error:
                # Whatever is behind it, the POST says whether the name is taken.
                if error.status not in _NOT_BY_APPLY:
                    raise
        return await self._request(
            "POST", path_of(kind, namespace), body=manifest, query=[_MANAGER]
        )

    async def apply(
        self, kind: Kind, manifest: Manifest, seen: Seen, *, subresource: str = ""
    ) -> Manifest:
        namespace, name = place_of(manifest)
        path, expected = path_of(kind, namespace, name, subresource), seen.in_metadata()
        try:
            return await self._apply(path, manifest, expected)
        except KubeError as error:
            if not subresource or error.status not in _UNDECLARED:
                raise
            declared = await self._declared(path, {subresource: manifest[subresource]}, error)
        return await self._apply(path, {**manifest, **declared}, expected)

    async def _declared(self, path: str, part: Manifest, refused: KubeError) -> Manifest:
        """What the schema knows of a part that a server-side apply was refused.

        Other writes drop what it does not know, and one as a dry run shows it.

        Raises:
            KubeError: `refused`: it is none of that.
        """
        dry = [_MANAGER, ("dryRun", "All")]
        try:
            found = await self._request("PATCH", path, body=part, content_type=_MERGE, query=dry)
        except KubeError:
            raise refused from None
        declared = kept(part, found)
        if declared == part:
            raise refused
        return declared

    async def merge(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        patch: Mapping[str, JsonValue],
        seen: Seen | None,
    ) -> Manifest | None:
        return await self._unless_missing(
            "PATCH",
            path_of(kind, namespace, name),
            body=patch if seen is None else with_metadata(patch, seen.in_metadata()),
            content_type=_MERGE,
            query=[_MANAGER],
        )

    async def delete(self, kind: Kind, namespace: str, name: str, seen: Seen) -> None:
        body: Manifest = {"propagationPolicy": "Background", "preconditions": seen.in_metadata()}
        await self._unless_missing("DELETE", path_of(kind, namespace, name), body=body)

    async def dry_run(self, kind: Kind, manifest: Manifest) -> None:
        path = path_of(kind, *place_of(manifest))
        await self._request("PATCH", path, body=manifest, content_type=_APPLY, query=_DRY_RUN)

    async def served(self) -> ServedApis:
        return await discover(self._get)

    async def _apply(
        self, path: str, manifest: Manifest, expected: Mapping[str, JsonValue]
    ) -> Manifest:
        return await self._request(
            "PATCH",
            path,
            body=with_metadata(manifest, expected),
            content_type=_APPLY,
            query=[_MANAGER, ("force", "true")],
        )

    async def _listed(self, kind: Kind, namespace: str, query: _Query) -> tuple[Manifest, ...]:
        path = path_of(kind, namespace)
        return items_of(kind, path, await self._request("GET", path, query=query))

    async def _get(self, path: str) -> Manifest | None:
        return await self._unless_missing("GET", path)

    async def _unless_missing(
        self,
        method: str,
        path: str,
        *,
        body: Mapping[str, JsonValue] | None = None,
        content_type: str = _JSON,
        query: _Query = (),
    ) -> Manifest | None:
        try:
            return await self._request(
                method, path, body=body, content_type=content_type, query=query
            )
        except KubeError as error:
            if error.gone:
                return None
            raise

    async def _request(
        self,
        method: str,
        path: str,
        *,
        body: Mapping[str, JsonValue] | None = None,
        content_type: str = _JSON,
        query: _Query = (),
    ) -> Manifest:
        try:
            async with asyncio.timeout(self._timeout_s):
                request = await self._serialized(
                    method, path, query=query, body=body, content_type=content_type
                )
                response = await self._asked(request)
                payload: bytes = await response.response.read()
        except (aiohttp.ClientError, ApiException, OSError) as error:
            raise self._no_answer(method, path, error=error) from error
        return answer_of(
            method, path, status=response.status, reason=str(response.reason), payload=payload
        )

    async def _asked(self, request: _Serialized, **options: Any) -> RESTResponse:
        """The answer. For a read, a server that is too busy is asked again when it wants to be.

        Not for a write: by then another operator may lead (`FencedKube`), so that its pass looks
        again.
        """
        loop = asyncio.get_running_loop()
        ends_s = loop.time() + self._timeout_s
        while True:
            response = await self._api.call_api(*request, **options)
            wait_s = again_after_s(response.status, response.headers)
            if wait_s is None or request[0] != "GET" or loop.time() + wait_s >= ends_s:
                return response
            await response.response.read()
            await asyncio.sleep(wait_s)

    async def _serialized(
        self,
        method: str,
        path: str,
        *,
        query: _Query,
        body: Mapping[str, JsonValue] | None = None,
        content_type: str = _JSON,
    ) -> _Serialized:
        return await self._api.param_serialize(
            method,
            path,
            query_params=list(query),
            header_params={"Accept": _JSON, "Content-Type": content_type},
            body=body,
            auth_settings=["BearerToken"],
        )
