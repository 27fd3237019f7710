"""A Kubernetes API in memory, for what the operator asks of one.

It is held to the same contract as the real client: see tests/contract/test_kube_contract.py. It
knows server-side apply by one manager (fields that are no longer applied go, unless somebody else
has changed them meanwhile), merge patches, the
status subresource, labels, generations, uids and versions that a write expects, 404 and 409. It
runs no controllers: tests play those.
"""

import asyncio
import json
import uuid
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import JsonValue

from fathom.adapters.ports import EventType, KubeError, Page, WatchEvent
from fathom.api import names
from fathom.cluster.kinds import CHILD_KINDS, EVENT, POD, SPECULATIVE_DEPLOYMENT, Kind, ServedApis
from fathom.cluster.manifest import Manifest, Seen

Place = tuple[Kind, str, str]
_REMEMBERED = 5000
"""Changes, for watches that go on where they were."""
_KEYS = ("name", "uid", "mountPath", "containerPort", "port", "type")


def copied(document: Any) -> Any:
    """What would come over the wire; a third of `copy.deepcopy`'s time."""
    return json.loads(json.dumps(document))


def selected(body: Mapping[str, Any], namespace: str, selector: str) -> bool:
    """Whether an object is in a namespace (empty: anywhere) and bears these labels (empty: any)."""
    metadata = body["metadata"]
    labels = metadata.get("labels") or {}

    def bears(part: str) -> bool:
        label, valued, value = part.partition("=")
        return label in labels and (not valued or labels[label] == value)

    wanted = selector.split(",") if selector else ()
    return namespace in {"", metadata["namespace"]} and all(map(bears, wanted))


def _label(body: Mapping[str, Any]) -> bool:
    return names.LABEL_NAME in (body["metadata"].get("labels") or {})


@dataclass(frozen=True)
class Write:
    """One request that changes something, as an audit log would show it."""

    verb: str
    kind: str
    name: str
    body: Any = field(compare=False, default=None)
    only_time: bool = field(compare=False, default=False)
    """Whether a status says nothing new but when it was written."""


@dataclass(frozen=True)
class Logged:
    """One change of one object, as watches tell of it."""

    version: int
    kind: Kind
    type: EventType
    body: dict[str, Any]
    """As it is then, or was last."""

    def is_in(self, namespace: str, selector: str) -> bool:
        return selected(self.body, namespace, selector)


class FakeKube:
    """`KubePort` in memory."""

    def __init__(self, served: ServedApis | None = None) -> None:
        self._objects: dict[Place, dict[str, Any]] = {}
        self._applied: dict[tuple[Place, str], Any] = {}
        self._log: deque[Logged] = deque(maxlen=_REMEMBERED)
        self._news = asyncio.Event()
        self._served = served or ServedApis()
        self.version = 0
        """Grows with every change, whoever makes it."""
        self.writes: list[Write] = []
        self.fail: Callable[[str, Kind], KubeError | None] = lambda _verb, _kind: None
        """A test's own trouble: given a verb and a kind, the error to raise, if any."""

    # -- what the operator uses

    async def get(self, kind: Kind, namespace: str, name: str) -> Manifest | None:
        self._trouble("get", kind)
        return copied(self._objects.get((kind, namespace, name)))

    async def select(self, kind: Kind, namespace: str, selector: str) -> tuple[Manifest, ...]:
        self._trouble("list", kind)
        return tuple(
            copied(found)
            for (each, *_), found in sorted(self._objects.items(), key=lambda i: i[0][2])
            if each == kind and selected(found, namespace, selector)
        )

    async def named(self, kind: Kind, namespace: str, name: str) -> Manifest | None:
        self._trouble("list", kind)
        return copied(self._objects.get((kind, namespace, name)))

    async def pages(self, kind: Kind, namespace: str, selector: str) -> AsyncIterator[Page]:
        yield Page(await self.select(kind, namespace, selector), str(self.version))

    async def watch(
        self, kind: Kind, namespace: str, selector: str, since: str, for_s: float
    ) -> AsyncGenerator[WatchEvent]:
        self._trouble("watch", kind)
        told, ends_s = int(since), asyncio.get_running_loop().time() + for_s
        yield WatchEvent(EventType.BOOKMARK, {}, since)
        while True:
            for each in self.since(told):
                told = each.version
                if each.kind == kind and each.is_in(namespace, selector):
                    yield WatchEvent(each.type, copied(each.body), str(each.version))
            if not self.since(told):
                self._news.clear()
                try:
                    async with asyncio.timeout_at(ends_s):
                        await self._news.wait()
                except TimeoutError:
                    return

    async def events(self, namespace: str, name: str, reason: str) -> tuple[Manifest, ...]:
        self._trouble("list", EVENT)
        return tuple(
            copied(found)
            for (each, where, _), found in sorted(self._objects.items(), key=lambda i: i[0][2])
            if (each, where) == (EVENT, namespace)
            and reason in {"", found.get("reason")}
            and found["involvedObject"].get("name") == name
        )

    async def create(self, kind: Kind, manifest: Manifest) -> Manifest:
        self._trouble("create", kind)
        body: dict[str, Any] = copied(manifest)
        metadata = body["metadata"]
        if "name" not in metadata:
            metadata["name"] = f"{metadata.pop('generateName')}{uuid.uuid4().hex[:5]}"
        place = (kind, metadata["namespace"], metadata["name"])
        if place in self._objects:
            raise KubeError(409, f"{kind.plural} {metadata['name']!r} already exists")
        self._note("create", place, body)
        self._applied[place, ""] = copied(body)
        return self._store(place, body)

    async def apply(
        self, kind: Kind, manifest: Manifest, seen: Seen, *, subresource: str = ""
    ) -> Manifest:
        self._trouble("apply", kind)
        body: dict[str, Any] = copied(manifest)
        place = (kind, body["metadata"]["namespace"], body["metadata"]["name"])
        if place not in self._objects:
            raise KubeError(404 if subresource else 409, f"{kind.plural} {place[2]!r} not found")
        self._expect(place, seen)
        self._note(subresource or "apply", place, body)
        if subresource:
            body = {subresource: body[subresource]}
        before = self._applied.get((place, subresource), {})
        self._applied[place, subresource] = body
        return self._store(place, merged(_without(self._objects[place], before, body), body))

    async def merge(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        patch: Mapping[str, JsonValue],
        seen: Seen | None,
    ) -> Manifest | None:
        self._trouble("patch", kind)
        place = (kind, namespace, name)
        if place not in self._objects:
            return None
        if seen is not None:
            self._expect(place, seen)
        self._note("patch", place, patch)
        body = merge_patched(self._objects[place], patch)
        self._taken_over(place, body)
        return self._store(place, body)

    async def delete(self, kind: Kind, namespace: str, name: str, seen: Seen) -> None:
        self._trouble("delete", kind)
        place = (kind, namespace, name)
        if place not in self._objects:
            return
        self._expect(place, seen)
        self._note("delete", place, None)
        self.remove(kind, namespace, name)

    async def served(self) -> ServedApis:
        return self._served

    # -- what tests use

    def forget_last(self) -> None:
        """No stream tells of what has just happened."""
        self._log.pop()

    def since(self, version: int) -> list[Logged]:
        """What has happened after a version, the oldest first.

        Raises:
            KubeError: 410: that is too long ago.
        """
        if len(self._log) == _REMEMBERED and version < self._log[0].version - 1:
            raise KubeError(410, f"too old resource version: {version}")
        return [each for each in self._log if each.version > version]

    def put(self, kind: Kind, manifest: Mapping[str, Any]) -> None:
        """Place an object as if someone else had written it, which is a new version of it."""
        body = copied(dict(manifest))
        place = (kind, body["metadata"]["namespace"], body["metadata"]["name"])
        self._taken_over(place, body)
        self._replace(place, body)

    def remove(self, kind: Kind, namespace: str, name: str) -> None:
        if (last := self._objects.pop((kind, namespace, name), None)) is not None:
            self.version += 1
            self._note_change(kind, EventType.DELETED, last)
        for each in [key for key in self._applied if key[0] == (kind, namespace, name)]:
            del self._applied[each]

    def find(self, kind: Kind, name: str, namespace: str = "llm") -> dict[str, Any]:
        """An object that must be there."""
        return self._objects[kind, namespace, name]

    def names(self, kind: Kind) -> list[str]:
        return sorted(name for each, _, name in self._objects if each == kind)

    def all_of(self, kind: Kind) -> list[dict[str, Any]]:
        places = sorted(place for place in self._objects if place[0] == kind)
        return [self._objects[place] for place in places]

    @property
    def news(self) -> list[Write]:
        """Writes but for those that only say that somebody watches."""
        return [each for each in self.writes if not each.only_time]

    def written(self, kind: str = "") -> list[Write]:
        return [each for each in self.writes if not kind or each.kind == kind]

    # -- inside

    def _expect(self, place: Place, seen: Seen) -> None:
        """Refuse a write that was decided on another state of the object, or on another object."""
        if Seen.of(self._objects[place]) != seen:
            raise KubeError(409, f"{place[0].plural} {place[2]!r} has been modified")

    def _taken_over(self, place: Place, body: dict[str, Any]) -> None:
        """What another manager sets to another value is no longer applied by us."""
        found = self._objects.get(place)
        for subresource in ("", "status") if found is not None else ():
            if applied := self._applied.get((place, subresource)):
                self._applied[place, subresource] = _unchanged(applied, found, body)

    def _store(self, place: Place, body: dict[str, Any]) -> Manifest:
        """Keep what a request leaves; one that changes nothing makes no new version."""
        if place not in self._objects or self._objects[place] != body:
            self._replace(place, body)
        return copied(self._objects[place])

    def _replace(self, place: Place, body: dict[str, Any]) -> None:
        before = self._objects.get(place)
        # A write to other fields hands on what it found here, which is of the version before.
        metadata = body["metadata"] = dict(body.get("metadata") or {})
        metadata.setdefault("uid", before["metadata"]["uid"] if before else uuid.uuid4().hex)
        metadata.setdefault("creationTimestamp", "2026-01-01T00:00:00Z")
        generation = before["metadata"].get("generation", 1) if before else 1
        if before and before.get("spec") != body.get("spec"):
            generation += 1
        metadata["generation"] = generation
        self.version += 1
        metadata["resourceVersion"] = str(self.version)
        self._objects[place] = body
        if before is not None and _label(before) and not _label(body):
            self._note_change(place[0], EventType.DELETED, before)
        change = EventType.ADDED if before is None else EventType.MODIFIED
        self._note_change(place[0], change, body)

    def _note_change(self, kind: Kind, change: EventType, body: Mapping[str, Any]) -> None:
        metadata = body["metadata"] | {"resourceVersion": str(self.version)}
        self._log.append(Logged(self.version, kind, change, {**body, "metadata": metadata}))
        self._news.set()

    def _note(self, verb: str, place: Place, body: Any) -> None:
        before = self._objects.get(place, {}), self._applied.get((place, "status"), {})
        only_time = verb == "status" and _timeless(body) in map(_timeless, before)
        self.writes.append(Write(verb, place[0].kind, place[2], copied(body), only_time))

    def _trouble(self, verb: str, kind: Kind) -> None:
        if (error := self.fail(verb, kind)) is not None:
            raise error


def _timeless(body: Mapping[str, Any]) -> dict[str, Any]:
    return {**(body.get("status") or {}), "lastReconcileTime": ""}


def _key_of(items: list[Any]) -> str | None:
    for key in _KEYS:
        if items and all(isinstance(item, dict) and key in item for item in items):
            return key
    return None


def merged(live: Any, applied: Any) -> Any:
    """What a server-side apply leaves: ours over theirs, lists of objects by key."""
    if isinstance(live, dict) and isinstance(applied, dict):
        result = dict(live)
        for name, value in applied.items():
            result[name] = merged(live.get(name), value)
        return result
    if isinstance(live, list) and isinstance(applied, list):
        key = _key_of(applied)
        if key is None or _key_of(live) != key:
            return applied
        by_key = {item[key]: item for item in live}
        ours = {item[key]: merged(by_key.get(item[key]), item) for item in applied}
        return [*ours.values(), *(item for item in live if item[key] not in ours)]
    return applied


def _without(live: Any, before: Any, applied: Any) -> Any:
    """`live` less the fields that were applied before and are no longer."""
    if isinstance(live, dict) and isinstance(before, dict) and isinstance(applied, dict):
        return {
            name: _without(value, before.get(name), applied.get(name))
            for name, value in live.items()
            if name not in before or name in applied
        }
    if isinstance(live, list) and isinstance(before, list) and isinstance(applied, list):
        key = _key_of(live)
        if key is None or _key_of(before) != key:
            return live
        ours = {item[key]: item for item in before}
        kept = {item[key]: item for item in applied if isinstance(item, dict) and key in item}
        return [
            _without(item, ours.get(item[key]), kept.get(item[key]))
            for item in live
            if item[key] not in ours or item[key] in kept
        ]
    return live


def _unchanged(applied: Any, before: Any, after: Any) -> Any:
    """`applied` less the fields that are something else after than before."""
    if before == after:
        return applied
    if all(isinstance(each, dict) for each in (applied, before, after)):
        return {
            name: _unchanged(value, before.get(name), after.get(name))
            for name, value in applied.items()
            if before.get(name) == after.get(name) or isinstance(value, dict | list)
        }
    key = _key_of(applied) if isinstance(applied, list) else None
    if key is None or not _key_of(before or []) == _key_of(after or []) == key:
        return None
    befores, afters = ({item[key]: item for item in each} for each in (before, after))
    return [item for item in applied if befores.get(item[key]) == afters.get(item[key])]


def merge_patched(live: Any, patch: Any) -> Any:
    """RFC 7386."""
    if not isinstance(patch, Mapping):
        return copied(patch)
    result = dict(live) if isinstance(live, Mapping) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merge_patched(result.get(name), value)
    return result


__all__ = ["CHILD_KINDS", "POD", "SPECULATIVE_DEPLOYMENT", "FakeKube", "Write"]
