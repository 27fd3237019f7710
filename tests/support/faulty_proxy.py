"""A proxy between operators and a real API server, in which all that can go wrong with it does.

Faults have the simulator's own types, and are set by its own deeds. Each concerns what is about one
SpeculativeDeployment, or everything. The resources here have one word as their name: what begins
with it is about it.
"""

import asyncio
import json
import random
import ssl
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final

import aiohttp
from aiohttp import web
from yarl import URL

from fathom.api import names
from fathom.cluster.kinds import SPECULATIVE_DEPLOYMENT, Kind
from storms.server import LEASE, Audit, Target, Trouble, route, verb_of
from storms.watch import WatchTrouble

EVERYBODY: Final = ""
_FORWARDED: Final = ("Authorization", "Accept", "Content-Type", "User-Agent")
_LONGEST_LINE_BYTES: Final = 8 << 20
"""Longest line of a watch: an event is one line."""
_REMEMBERED: Final = 100
"""Answers to one question, for reads that are stale."""
_READS: Final = frozenset({"get", "list"})


@dataclass(frozen=True, slots=True)
class Asked:
    """One request of an operator that is about an object, or a kind."""

    who: str
    verb: str
    target: Target
    about: str
    """Name of the SpeculativeDeployment; empty: none in particular."""


@dataclass
class Scope:
    """What is wrong for one resource, or for everybody."""

    trouble: Trouble = field(default_factory=Trouble)
    watches: WatchTrouble = field(default_factory=WatchTrouble)
    latency_s: float = 0.0
    """On the way there, and on the way back."""


@dataclass(frozen=True, slots=True)
class _Answer:
    status: int
    body: bytes

    @property
    def document(self) -> Any:
        return json.loads(self.body)

    def response(self) -> web.Response:
        """With what an API server adds to 429."""
        headers = {"Retry-After": "1"} if self.status == HTTPStatus.TOO_MANY_REQUESTS else {}
        return web.Response(
            status=self.status, body=self.body, content_type="application/json", headers=headers
        )


class FaultyProxy:
    """Forwards requests, spoils some, and writes down each write."""

    def __init__(self, server: str, session: aiohttp.ClientSession) -> None:
        """Start with nothing wrong.

        Args:
            server: URL of the API server.
            session: for it.
        """
        self._server = server
        self._session = session
        self._scopes: defaultdict[str, Scope] = defaultdict(Scope)
        self._read: defaultdict[str, deque[tuple[float, _Answer]]] = defaultdict(
            lambda: deque(maxlen=_REMEMBERED)
        )
        self._streams: set[asyncio.Queue[bytes | None]] = set()
        self._random = random.Random("proxy")
        self.attempts: list[Asked] = []
        """Writes that were sent, but for leases: also those that came to nothing."""
        self.looked_at_s: dict[str, float] = {}
        """By resource: when something about it was last read."""
        self.audits: list[Audit] = []
        """Writes that the API server took."""
        self.watching: list[Callable[[Audit], None]] = []
        """Told of each of those."""
        self.before_write: list[Callable[[Asked], Awaitable[None]]] = []
        """Told of each write before it is carried out, which it may delay."""
        self.missing: list[Callable[[Asked], None]] = []
        """Told of each read of an object that is not there, before the answer is on its way."""

    def scope(self, name: str) -> Scope:
        """What is wrong for a resource, or for everybody."""
        return self._scopes[name]

    def cut(self, last: bytes = b"") -> None:
        """End all watches, after a last line."""
        for queue in self._streams:
            if last:
                queue.put_nowait(last)
            queue.put_nowait(None)

    def handler(self, who: str) -> Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]:
        """Answers one operator."""

        async def handle(request: web.BaseRequest) -> web.StreamResponse:
            return await self._handle(who, request)

        return handle

    # -- a request

    async def _handle(self, who: str, request: web.BaseRequest) -> web.StreamResponse:
        body = await request.read()
        target = route(request.path)
        if target is None:
            return (await self._forward(request, body)).response()
        sent = json.loads(body) if body else None
        verb = verb_of(request.method, target.name, request.content_type)
        asked = Asked(who, verb, target, _about(target, request, sent))
        if any(each.trouble.hang for each in self._in_force(asked.about)):
            await asyncio.Event().wait()
        await self._on_the_way(asked)
        for each in self._in_force(asked.about):
            if (error := each.trouble.refuse(verb, target.kind, who)) is not None:
                self._note(asked)
                return _broken(request, error.status, error.message)
        if request.query.get("watch") == "true":
            return await self._watch(request)
        if verb in _READS:
            answer = await self._answer_read(asked, request)
        else:
            # Carried out to its end, also if the operator does not live to see it.
            answer = await asyncio.shield(
                asyncio.ensure_future(self._write(asked, request, body, sent))
            )
        await self._on_the_way(asked)
        lost = any(
            each.trouble.lose_answers(verb, target.kind, who)
            for each in self._in_force(asked.about)
        )
        return _broken(request, 0, "") if lost else answer.response()

    async def _on_the_way(self, asked: Asked) -> None:
        await asyncio.sleep(sum(each.latency_s for each in self._in_force(asked.about)))

    def _in_force(self, about: str) -> Iterator[Scope]:
        yield self._scopes[EVERYBODY]
        if about != EVERYBODY:
            yield self._scopes[about]

    def _note(self, asked: Asked) -> None:
        if asked.verb not in _READS and asked.target.kind != LEASE:
            self.attempts.append(asked)

    async def _forward(
        self, request: web.BaseRequest, body: bytes, *, method: str = "", path: str = ""
    ) -> _Answer:
        url = URL(self._server + (path or request.path_qs), encoded=True)
        async with self._session.request(
            method or request.method, url, data=body or None, headers=_headers(request)
        ) as answer:
            return _Answer(answer.status, await answer.read())

    async def _answer_read(self, asked: Asked, request: web.BaseRequest) -> _Answer:
        """As it is, or as it was that long ago, or as it first was."""
        now_s = asyncio.get_running_loop().time()
        self.looked_at_s[asked.about] = now_s
        past = self._read[request.path_qs]
        scopes, kind = self._in_force(asked.about), asked.target.kind
        stale = [age_s for each in scopes for age_s in each.trouble.ages_s(kind).values()]
        if stale and past:
            old = [answer for at_s, answer in past if at_s <= now_s - max(stale)]
            return old[-1] if old else past[0][1]
        answer = await self._forward(request, b"")
        if asked.about:
            past.append((now_s, answer))
        if answer.status == HTTPStatus.NOT_FOUND:
            for told in self.missing:
                told(asked)
        return answer

    async def _write(
        self, asked: Asked, request: web.BaseRequest, body: bytes, sent: Any
    ) -> _Answer:
        for told in self.before_write:
            await told(asked)
        self._note(asked)
        kind, name = asked.target.kind, asked.target.name
        # A write that carries the version on which it was decided is only taken at this one.
        before = None
        if name and kind != LEASE:
            path = request.path.removesuffix(f"/{asked.target.subresource}")
            found = await self._forward(request, b"", method="GET", path=path)
            before = found.document if found.status == HTTPStatus.OK else None
        answer = await self._forward(request, body)
        if answer.status < HTTPStatus.MULTIPLE_CHOICES:
            document = answer.document
            after = None if asked.verb == "delete" and kind.kind != "Pod" else document
            audit = Audit(
                at_s=asyncio.get_running_loop().time(),
                who=asked.who,
                verb=asked.target.subresource or asked.verb,
                kind=kind.kind,
                namespace=asked.target.namespace,
                name=name or document["metadata"]["name"],
                body=sent,
                before=before,
                after=after,
            )
            if kind != LEASE:
                self.audits.append(audit)
            for heard in self.watching:
                heard(audit)
        return answer

    # -- watches

    async def _watch(self, request: web.BaseRequest) -> web.StreamResponse:
        url = URL(self._server + request.path_qs, encoded=True)
        queue: asyncio.Queue[bytes | None] = asyncio.Queue()
        forever = aiohttp.ClientTimeout(total=None)
        async with self._session.get(url, headers=_headers(request), timeout=forever) as upstream:
            if upstream.status != HTTPStatus.OK:
                return _Answer(upstream.status, await upstream.read()).response()
            response = web.StreamResponse(headers={"Content-Type": "application/json"})
            await response.prepare(request)
            following = asyncio.ensure_future(self._follow(upstream, queue))
            self._streams.add(queue)
            try:
                while (line := await queue.get()) is not None:
                    await response.write(line)
            finally:
                self._streams.discard(queue)
                following.cancel()
        return response

    async def _follow(
        self, upstream: aiohttp.ClientResponse, queue: asyncio.Queue[bytes | None]
    ) -> None:
        """Hand each event on, as far as nothing is wrong with it."""
        loop = asyncio.get_running_loop()
        try:
            async for line in upstream.content:
                wrong = [each.watches for each in self._in_force(_event_about(line))]
                if any(each.silent or self._random.random() < each.dropped for each in wrong):
                    continue
                twice = any(self._random.random() < each.doubled for each in wrong)
                late_s = max(each.late_s for each in wrong)
                for _ in range(2 if twice else 1):
                    loop.call_later(late_s, queue.put_nowait, line)
        finally:
            queue.put_nowait(None)


@asynccontextmanager
async def listening(proxy: FaultyProxy, who: str) -> AsyncIterator[str]:
    """The URL at which an operator reaches it."""
    # What an operator no longer waits for, nobody does.
    runner = web.ServerRunner(
        web.Server(proxy.handler(who), handler_cancellation=True), shutdown_timeout=0.1
    )
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        host, port = runner.addresses[0][:2]
        yield f"http://{host}:{port}"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def proxy_before(server: str, ca_certificate: str) -> AsyncIterator[FaultyProxy]:
    """A proxy before an API server."""
    connector = aiohttp.TCPConnector(ssl=ssl.create_default_context(cafile=ca_certificate), limit=0)
    async with aiohttp.ClientSession(
        connector=connector, read_bufsize=_LONGEST_LINE_BYTES
    ) as session:
        yield FaultyProxy(server, session)


def _headers(request: web.BaseRequest) -> dict[str, str]:
    """Without compression: what is packed cannot be looked into."""
    given = {name: request.headers[name] for name in _FORWARDED if name in request.headers}
    return {**given, "Accept-Encoding": "identity"}


def _broken(request: web.BaseRequest, status: int, message: str) -> web.Response:
    """An error, or for status 0 a connection that ends without a word."""
    if status == 0:
        assert request.transport is not None
        request.transport.abort()
        return web.Response(status=500)
    body = {"kind": "Status", "apiVersion": "v1", "message": message, "code": status}
    return _Answer(status, json.dumps(body).encode()).response()


def _about(target: Target, request: web.BaseRequest, sent: Any) -> str:
    """The resource that a request is about, by its selectors, its path, or what is sent."""
    label, _, value = request.query.get("labelSelector", "").partition("=")
    if label == names.LABEL_NAME and value:
        return value
    name = target.name or request.query.get("fieldSelector", "").removeprefix("metadata.name=")
    if not name and sent:
        name = sent.get("involvedObject", sent["metadata"])["name"]
    return _word(target.kind, name)


def _word(kind: Kind, name: str) -> str:
    return EVERYBODY if kind == LEASE else name.partition("-")[0]


def _event_about(line: bytes) -> str:
    body: Mapping[str, Any] = json.loads(line)["object"]
    metadata = body.get("metadata") or {}
    if body.get("kind") == SPECULATIVE_DEPLOYMENT.kind:
        return str(metadata.get("name", EVERYBODY))
    return str((metadata.get("labels") or {}).get(names.LABEL_NAME, EVERYBODY))
