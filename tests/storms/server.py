"""The API server of a history: the fake one behind the real client, with all that can go wrong.

Every request of the operator passes through `Transport`, as REST; what the cluster's own
controllers and people do goes to the objects directly, and is never disturbed.
"""

import asyncio
import itertools
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

import aiohttp
from pydantic_core import from_json, to_json

from fathom.adapters.ports import EventType, KubeError
from fathom.cluster.kinds import (
    CHILD_KINDS,
    EVENT,
    NODE,
    OPTIONAL_KINDS,
    POD_DISRUPTION_BUDGET,
    SPANNING_KINDS,
    SPECULATIVE_DEPLOYMENT,
    Kind,
)
from fathom.cluster.manifest import Seen
from storms.simulated_time import START_S, Process, SimulatedLoop, current
from support.fake_kube import FakeKube, Logged, copied, merge_patched, merged, selected

LEASE: Final = Kind(group="coordination.k8s.io", version="v1", kind="Lease", plural="leases")
KINDS: Final = {
    (kind.group, kind.plural): kind
    for kind in (
        SPECULATIVE_DEPLOYMENT,
        EVENT,
        NODE,
        LEASE,
        *CHILD_KINDS,
        *OPTIONAL_KINDS,
        *SPANNING_KINDS,
    )
}
SERVED: Final = (*CHILD_KINDS, POD_DISRUPTION_BUDGET)
"""Kinds that every cluster has beside the operator's own; none has PodMonitors."""
_NEVER: Final = "1"
"""A version that no object is ever at: an apply that expects it only creates."""
_OK: Final = range(200, 300)
REMEMBERED_S: Final = 600.0
"""For how long the past can be read, where a read is answered from it."""


@dataclass(frozen=True, slots=True)
class Audit:
    """One request that changed something, or tried to."""

    at_s: float
    who: str
    verb: str
    kind: str
    namespace: str
    name: str
    body: Any = field(compare=False)
    before: Any = field(compare=False)
    after: Any = field(compare=False)

    @property
    def place(self) -> tuple[str, str, str]:
        return self.kind, self.namespace, self.name


@dataclass(frozen=True, slots=True)
class Target:
    """What a request is about."""

    kind: Kind
    namespace: str
    name: str
    """Empty: all of the kind."""
    subresource: str


Refusal = Callable[[str, Kind, str], KubeError | None]
"""Given verb, kind and who asks: the error that is answered; None: this refuses nothing."""


@dataclass
class Trouble:
    """What is wrong with the API server now. Every field is set by deeds, and set back."""

    refusals: list[Refusal] = field(default_factory=list)
    """Refusals of all that are under way at a time, each by itself."""
    lose_answers: Callable[[str, Kind, str], bool] = lambda _verb, _kind, _who: False
    """Whether a request is carried out, but its answer never arrives."""
    hang: bool = False
    """No request is ever answered, nor carried out."""
    stale_s: dict[str, float] = field(default_factory=dict)
    """By process: how old the state is from which its reads are answered."""
    stale_kinds: frozenset[Kind] = frozenset()
    """Kinds of which reads are that old; empty: all."""

    def ages_s(self, kind: Kind) -> Mapping[str, float]:
        """By process: how old the state is from which its reads of a kind are answered."""
        return self.stale_s if not self.stale_kinds or kind in self.stale_kinds else {}

    @contextmanager
    def refusing(self, refusal: Refusal) -> Iterator[None]:
        """Refuse until the end of the block, beside what else is refused then."""
        self.refusals.append(refusal)
        try:
            yield
        finally:
            self.refusals.remove(refusal)

    def refuse(self, verb: str, kind: Kind, who: str) -> KubeError | None:
        """The error that is answered, if any."""
        answers = (each(verb, kind, who) for each in self.refusals)
        return next((each for each in answers if each is not None), None)


class Objects(FakeKube):
    """The fake API server, with ids that are the same in every run, and a past."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        super().__init__()
        self._ids = itertools.count(1)
        self._now_s = now_s
        self._kinds: defaultdict[Kind, dict[tuple[str, str], dict[str, Any]]] = defaultdict(dict)
        self._sorted: dict[Kind, list[dict[str, Any]]] = {}
        """Lists of kinds that nothing was written of since somebody asked."""
        self.past: deque[tuple[float, dict[Any, dict[str, Any]]]] = deque()
        self.changed: list[Callable[[Kind, str, str, Mapping[str, Any] | None], None]] = []
        """Told of each change: kind, namespace, name and the object; None: it is gone."""
        self.logged: list[Callable[[Logged], None]] = []
        """Told of each change as watches are."""
        self.keeps: Callable[[Kind, dict[str, Any]], dict[str, Any]] = lambda _, body: body
        """What is kept of an object of a kind that somebody writes."""

    def put(self, kind: Kind, manifest: Mapping[str, Any]) -> None:
        super().put(kind, self.keeps(kind, dict(manifest)))

    def _store(self, place: Any, body: dict[str, Any]) -> Any:
        return super()._store(place, self.keeps(place[0], body))

    def _replace(self, place: Any, body: dict[str, Any]) -> None:
        before = self._objects.get(place)
        if before is None:
            body.setdefault("metadata", {}).setdefault("uid", f"uid-{next(self._ids)}")
            body["metadata"].setdefault("creationTimestamp", rfc3339(self._now_s()))
        super()._replace(place, body)
        self._moved(place, self._objects[place])

    def apply_as_another(
        self, kind: Kind, found: Mapping[str, Any], theirs: Mapping[str, Any]
    ) -> None:
        """Another field manager applies its fields to an object, by force."""
        self.put(kind, merged(found, theirs))

    def remove(self, kind: Kind, namespace: str, name: str) -> None:
        found = self._objects.get((kind, namespace, name))
        super().remove(kind, namespace, name)
        if found is not None:
            self._moved((kind, namespace, name), None, found)

    def _note_change(self, kind: Kind, change: EventType, body: Mapping[str, Any]) -> None:
        super()._note_change(kind, change, body)
        for told in list(self.logged):
            told(self.since(self.version - 1)[-1])

    def serial(self) -> str:
        return f"{next(self._ids):05d}"

    def look(self, kind: Kind, namespace: str, name: str) -> dict[str, Any] | None:
        """An object as it is; never to be changed by who looks."""
        return self._objects.get((kind, namespace, name))

    def each(self, kind: Kind) -> list[dict[str, Any]]:
        """All of a kind as they are, by namespace and name; never to be changed."""
        if kind not in self._sorted:
            found = self._kinds[kind]
            self._sorted[kind] = [found[place] for place in sorted(found)]
        return list(self._sorted[kind])

    def as_of(self, at_s: float) -> dict[Any, dict[str, Any]]:
        """All objects as they were."""
        for when, objects in reversed(self.past):
            if when <= at_s:
                return objects
        return self.past[0][1] if self.past else self._objects

    def _moved(
        self, place: Any, body: dict[str, Any] | None, gone: dict[str, Any] | None = None
    ) -> None:
        now_s = self._now_s()
        self._sorted.pop(place[0], None)
        if body is not None:
            self._kinds[place[0]][place[1:]] = body
        else:
            self._kinds[place[0]].pop(place[1:], None)
        if self.past and self.past[-1][0] == now_s:
            self.past.pop()
        self.past.append((now_s, dict(self._objects)))
        while self.past[0][0] < now_s - REMEMBERED_S and len(self.past) > 1:
            self.past.popleft()
        for told in list(self.changed):
            told(place[0], place[1], place[2], body if body is not None else gone)


class Server:
    """What happens to each request."""

    def __init__(
        self, loop: SimulatedLoop, latency_s: float, served: Sequence[Kind] = SERVED
    ) -> None:
        """Start, empty.

        Args:
            loop: what it runs in.
            latency_s: seconds that a request takes on its way, and its answer on the way back.
            served: kinds that this cluster has.
        """
        self.loop = loop
        self._latency_s = latency_s
        self._served = served
        self.objects = Objects(loop.time)
        self.undeclared: Callable[[Mapping[str, Any]], str] = lambda _: ""
        """The first field of a resource that the server refuses to apply; empty: it applies all."""
        self.trouble = Trouble()
        self._leases: dict[tuple[str, str], dict[str, Any]] = {}
        self._lease_version = 0
        self.audits: list[Audit] = []
        self.watching: list[Callable[[Audit], None]] = []
        """Told of each write, after it."""
        self.asking: list[Callable[[str, str, Target], None]] = []
        """Told who asks for what, whatever becomes of it; but for leases."""
        self.confined: dict[str, str] = {}
        """Who may ask for what is in one namespace alone, and for no nodes."""
        self.watches: Callable[[Target, Mapping[str, str]], AsyncIterator[bytes]] | None = None
        """What tells of changes, by the request's target and query."""
        self.before_write: list[Callable[[str, str, Kind], None]] = []
        """Told who is about to write what, so that a process can be ended there."""

    async def answer(
        self, who: Process, method: str, url: str, body: Any, content_type: str
    ) -> tuple[int, Any]:
        """Status and document of one request."""
        if self.trouble.hang:
            await _never()
        await asyncio.sleep(self._latency_s)
        path, query = urlsplit(url).path, dict(parse_qsl(urlsplit(url).query))
        target = route(path)
        if target is None:
            return self._discovery(path)
        verb = verb_of(method, target.name, content_type)
        try:
            answer = await self._carried_out(who, verb, target, body, query)
        except KubeError as error:
            answer = _refused(error)
        await asyncio.sleep(self._latency_s)
        return answer

    async def watch(self, who: Process, url: str) -> tuple[int, Any]:
        """Status, and the lines that follow, or the document that says why there are none."""
        if self.trouble.hang:
            await _never()
        await asyncio.sleep(self._latency_s)
        query = dict(parse_qsl(urlsplit(url).query))
        target = route(urlsplit(url).path)
        assert target is not None
        assert self.watches is not None
        await self._asked(who, "watch", target)
        if (error := self.trouble.refuse("watch", target.kind, who.name)) is not None:
            return _refused(error)
        return 200, self.watches(target, query)

    async def _carried_out(
        self, who: Process, verb: str, target: Target, body: Any, query: Mapping[str, str]
    ) -> tuple[int, Any]:
        kind = target.kind
        # A list of one, by its name, costs no more than to get it.
        await self._asked(who, "get" if "fieldSelector" in query else verb, target)
        if who.name in self.confined and kind == NODE:
            raise KubeError(403, "nodes is forbidden")
        if (error := self.trouble.refuse(verb, kind, who.name)) is not None:
            raise error
        if kind == LEASE:
            return self._lease(who, verb, target, body)
        if verb in {"get", "list"}:
            return 200, self._read(who, target, query)
        if "dryRun" in query:
            return 200, self._dry(target, body)
        if verb == "apply" and kind == SPECULATIVE_DEPLOYMENT and (path := self.undeclared(body)):
            raise KubeError(500, f"failed to create typed patch object: {path} is not declared")
        for told in self.before_write:
            told(who.name, verb, kind)
        await _while_alive(who)
        answer = await self._write(who, verb, target, body)
        if self.trouble.lose_answers(verb, kind, who.name):
            await _never()
        return 200, answer

    async def _asked(self, who: Process, verb: str, target: Target) -> None:
        await _while_alive(who)
        if target.kind != LEASE:
            for told in self.asking:
                told(who.name, verb, target)

    def _lease(self, who: Process, verb: str, target: Target, body: Any) -> tuple[int, Any]:
        """Leases are renewed every two seconds: they stand apart, so that this costs little."""
        namespace, name = target.namespace, target.name or body["metadata"]["name"]
        before = self._leases.get((namespace, name))
        if before is None and verb != "create":
            raise KubeError(404, f"leases {name!r} not found")
        if verb == "get":
            return 200, before
        if verb == "create" and before is not None:
            raise KubeError(409, f"leases {name!r} already exists")
        version = body["metadata"].get("resourceVersion")
        if before is not None and version not in {None, before["metadata"]["resourceVersion"]}:
            raise KubeError(409, f"leases {name!r} has been modified")
        self._lease_version += 1
        metadata = {
            "name": name,
            "namespace": namespace,
            "resourceVersion": str(self._lease_version),
        }
        after = {**body, "metadata": {**body["metadata"], **metadata}}
        self._leases[namespace, name] = after
        audit = Audit(
            self.loop.time(), who.name, verb, "Lease", namespace, name, body, before, after
        )
        for told in self.watching:
            told(audit)
        return 200, after

    def _read(self, who: Process, target: Target, query: Mapping[str, str]) -> Any:
        kind, namespace, name = target.kind, target.namespace, target.name
        stale_s = self.trouble.ages_s(kind).get(who.name, 0.0)
        version = self.objects.version
        if stale_s:
            objects = self.objects.as_of(self.loop.time() - stale_s)
            items = [body for (each, *_), body in objects.items() if each == kind]
            found = objects.get((kind, namespace, name))
            versions = (int(each["metadata"]["resourceVersion"]) for each in objects.values())
            version = max(versions, default=0)
        else:
            items = [] if name else self.objects.each(kind)
            found = self.objects.look(kind, namespace, name)
        if not name:
            return _list(kind, items, namespace, query, version)
        if found is None:
            raise KubeError(404, f"{kind.plural} {name!r} not found")
        return found

    def _dry(self, target: Target, body: Any) -> Any:
        """What a merge patch would leave."""
        found = self.objects.look(target.kind, target.namespace, target.name)
        if found is None:
            raise KubeError(404, f"{target.kind.plural} {target.name!r} not found")
        return self.objects.keeps(target.kind, merge_patched(found, body))

    async def _write(self, who: Process, verb: str, target: Target, body: Any) -> Any:
        fake, kind, namespace, name = self.objects, target.kind, target.namespace, target.name
        body = copied(body)
        if verb == "create":
            metadata = body.setdefault("metadata", {})
            metadata.setdefault("namespace", namespace)
            if "name" not in metadata:
                metadata["name"] = f"{metadata.pop('generateName')}{fake.serial()}"
            name = metadata["name"]
        before = fake.look(kind, namespace, name)
        seen = _expected(body) if verb in {"apply", "patch"} else None
        match verb:
            case "create":
                answer: Any = await fake.create(kind, body)
            case "apply" if seen is not None and seen.resource_version == _NEVER:
                answer = await fake.create(kind, body)
            case "apply":
                assert seen is not None, "an apply that would land on whatever is there"
                answer = await fake.apply(kind, body, seen, subresource=target.subresource)
            case "patch":
                answer = await fake.merge(kind, namespace, name, body, seen)
            case "delete" if before is not None:
                answer = self._delete(target, before, body)
            case _:
                answer = None
        if answer is None:
            raise KubeError(404, f"{kind.plural} {name!r} not found")
        audit = Audit(
            at_s=self.loop.time(),
            who=who.name,
            verb=target.subresource or verb,
            kind=kind.kind,
            namespace=namespace,
            name=name,
            body=body,
            before=before,
            after=fake.look(kind, namespace, name),
        )
        self.audits.append(audit)
        for told in self.watching:
            told(audit)
        return answer

    def _delete(self, target: Target, before: Any, body: Any) -> Mapping[str, str]:
        kind, namespace, name = target.kind, target.namespace, target.name
        wanted = (body or {}).get("preconditions") or {}
        for field_name in ("uid", "resourceVersion"):
            if wanted.get(field_name) not in {None, before["metadata"].get(field_name)}:
                raise KubeError(409, f"{kind.plural} {name!r}: the {field_name} is another")
        if kind.kind == "Pod":
            # It drains first; its kubelet takes it away.
            leaving = copied(before)
            leaving["metadata"].setdefault("deletionTimestamp", rfc3339(self.loop.time()))
            if "gracePeriodSeconds" in (body or {}):
                leaving["metadata"]["deletionGracePeriodSeconds"] = body["gracePeriodSeconds"]
            self.objects.put(kind, leaving)
        else:
            self.objects.remove(kind, namespace, name)
        return {"kind": "Status", "status": "Success"}

    def _discovery(self, path: str) -> tuple[int, Any]:
        served = [
            kind
            for kind in self._served
            if path in {f"/apis/{kind.api_version}", f"/api/{kind.api_version}"}
        ]
        if not served:
            return 404, {"kind": "Status", "message": f"{path} is not served", "code": 404}
        resources = [{"name": kind.plural, "kind": kind.kind} for kind in served]
        return 200, {"kind": "APIResourceList", "resources": resources}


class Transport:
    """Takes the place of the client library's HTTP transport, in one process."""

    def __init__(self, server: Server, who: Process) -> None:
        self._server = server
        self._who = who

    async def request(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str] | None = None,
        body: Any = None,
        post_params: Any = None,
        _request_timeout: Any = None,
    ) -> "Response":
        """One REST call, as the library's own `request`."""
        del post_params, _request_timeout
        kind = (headers or {}).get("Content-Type", "application/json")
        # Over the wire: nobody shares an object with the server.
        sent = None if body is None else from_json(to_json(body))
        assert current() in {None, self._who}
        if "watch=true" in urlsplit(url).query:
            status, told = await self._server.watch(self._who, url)
            return Response(status, b"", told) if status in _OK else Response(status, to_json(told))
        status, document = await self._server.answer(self._who, method, url, sent, kind)
        return Response(status, to_json(document))

    async def close(self) -> None:
        """Nothing is open."""


class Response:
    """What the client library expects of an HTTP answer."""

    def __init__(
        self, status: int, payload: bytes, content: AsyncIterator[bytes] | None = None
    ) -> None:
        self.status = status
        self.content = content
        self.reason = "Simulated"
        self.data: bytes | None = payload
        self.headers: dict[str, str] = {"content-type": "application/json"}
        self.response = self

    async def read(self) -> bytes:
        return self.data or b""

    def close(self) -> None:
        """Nothing is open."""

    def getheaders(self) -> dict[str, str]:
        return self.headers

    def getheader(self, name: str, default: str | None = None) -> str | None:
        return self.headers.get(name.lower(), default)


def connection_lost() -> aiohttp.ClientError:
    """What a client sees of a server that went away."""
    return aiohttp.ServerDisconnectedError("simulated")


def _list(
    kind: Kind,
    found: Iterable[dict[str, Any]],
    namespace: str,
    query: Mapping[str, str],
    version: int,
) -> dict[str, Any]:
    """Those in a namespace (empty: anywhere) that carry a label, with a value if one is given."""
    selector = query.get("labelSelector", "")
    fields = query.get("fieldSelector", "")
    wanted = [each.split("=", 1) for each in fields.split(",")] if fields else []
    items = [
        body
        for body in found
        if selected(body, namespace, selector)
        and all(_at(body, path) == value for path, value in wanted)
    ]
    metadata = {"resourceVersion": str(version)}
    return {"kind": f"{kind.kind}List", "metadata": metadata, "items": items}


def _at(body: Mapping[str, Any], path: str) -> Any:
    found: Any = body
    for part in path.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return found


def _refused(error: KubeError) -> tuple[int, Any]:
    if error.status == 0:
        raise connection_lost()
    return error.status, {"kind": "Status", "message": error.message, "code": error.status}


def _expected(body: dict[str, Any]) -> Seen | None:
    """The state that a write expects, taken out of its metadata; None: any."""
    metadata = body.get("metadata") or {}
    version = metadata.pop("resourceVersion", None)
    uid = metadata.pop("uid", "")
    return None if version is None else Seen(uid, version)


def verb_of(method: str, name: str, content_type: str) -> str:
    """What a request does, in one word."""
    match method:
        case "GET":
            return "get" if name else "list"
        case "PATCH":
            return "apply" if "apply" in content_type else "patch"
        case _:
            return {"POST": "create", "PUT": "replace", "DELETE": "delete"}[method]


@lru_cache(maxsize=1000)
def route(path: str) -> Target | None:
    """What a path leads to; None: to no object."""
    parts = [unquote(part) for part in path.strip("/").split("/")]
    if parts[0] not in {"api", "apis"}:
        return None
    group = parts[1] if parts[0] == "apis" and len(parts) > 1 else ""
    rest = parts[3 if parts[0] == "apis" else 2 :]
    namespace = ""
    if len(rest) > 2 and rest[0] == "namespaces":
        namespace, rest = rest[1], rest[2:]
    kind = KINDS.get((group, rest[0])) if rest else None
    if kind is None:
        return None
    name, subresource, *_ = [*rest[1:], "", ""]
    return Target(kind, namespace, name, subresource)


async def _while_alive(who: Process) -> None:
    """What a dead process still asks is never carried out."""
    if not who.alive:
        await _never()


async def _never() -> None:
    await asyncio.Event().wait()


@lru_cache(maxsize=1000)
def rfc3339(at_s: float) -> str:
    """Simulated seconds as a timestamp of the API."""
    moment = datetime.fromtimestamp(START_S + at_s, UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
