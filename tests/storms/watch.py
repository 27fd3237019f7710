"""Watches of a history: streams of what happens, and all that can be wrong with them.

Children are followed by the operator's own informers, resources as Kopf does it: a list, then
events, and a new stream when one ends.
"""

import asyncio
import json
import random
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final

from fathom.adapters.ports import EventType, KubeError, KubePort
from fathom.cluster.kinds import SPECULATIVE_DEPLOYMENT, Kind
from storms.server import Objects, Target
from support.fake_kube import Logged, selected

LATENCY_S: Final = 0.02
INACTIVITY_S: Final = 70.0
"""Kopf's own: a stream that is silent for longer than between two bookmarks is opened anew."""
RETRY_S: Final = 1.0
STREAM_S: Final = 1800.0
"""An API server ends a stream after 30 minutes at the earliest; Kopf asks for no other time."""

Told = Callable[[str, str, int, Mapping[str, str], str], None]
"""Namespace, name, generation, annotations and version of an object that is there or changed."""


@dataclass
class WatchTrouble:
    """What is wrong with watches now, by deeds."""

    dropped: float = 0.0
    """Probability that an event is lost."""
    doubled: float = 0.0
    late_s: float = 0.0
    """Extra time of each event."""
    brief: bool = False
    """Each stream ends as soon as it has told what was missed."""
    gone: bool = False
    """No version is known: each watch is answered 410."""
    silent: bool = False
    """Nothing arrives, and the streams stay open."""


@dataclass(eq=False)
class _Stream:
    kind: Kind
    lines: asyncio.Queue[Logged | None] = field(default_factory=asyncio.Queue)
    """None: it ends."""


class Watches:
    """All open streams."""

    def __init__(self, loop: asyncio.AbstractEventLoop, objects: Objects, seed: int) -> None:
        self._loop = loop
        self._objects = objects
        self._random = random.Random(seed)
        self._open: list[_Stream] = []
        self.trouble = WatchTrouble()
        objects.logged.append(self._changed)

    def cut(self) -> None:
        """End all streams, as with 410 or when the API server restarts."""
        for stream in self._open:
            stream.lines.put_nowait(None)

    def bookmark(self) -> None:
        """Once a minute, so that streams without events are known to live."""
        if not self.trouble.silent:
            for stream in self._open:
                version = self._objects.version
                metadata = {"resourceVersion": str(version)}
                body = {"metadata": metadata}
                stream.lines.put_nowait(Logged(version, stream.kind, EventType.BOOKMARK, body))

    async def lines(self, target: Target, query: Mapping[str, str]) -> AsyncGenerator[bytes]:
        """The answer to a watch, which ends when it was asked to, as an API server's does."""
        ends_s = self._loop.time() + float(query["timeoutSeconds"])
        stream = _Stream(target.kind)
        self._open.append(stream)
        try:
            try:
                self._begin(stream, query["resourceVersion"])
            except KubeError as error:
                yield _line("ERROR", {"code": error.status, "message": error.message})
                return
            while (left_s := ends_s - self._loop.time()) > 0:
                try:
                    async with asyncio.timeout(min(left_s, INACTIVITY_S)):
                        told = await stream.lines.get()
                except TimeoutError:
                    if left_s > INACTIVITY_S:
                        raise
                    return
                if told is None:
                    return
                selector = query.get("labelSelector", "")
                if told.type is EventType.BOOKMARK or selected(
                    told.body, target.namespace, selector
                ):
                    yield _line(told.type, told.body)
        finally:
            self._open.remove(stream)

    def _begin(self, stream: _Stream, version: str) -> None:
        """What has happened since a version comes first.

        Raises:
            KubeError: 410: that is too long ago.
        """
        if self.trouble.gone:
            raise KubeError(410, f"too old resource version: {version}")
        missed = self._objects.since(int(version))
        if not self.trouble.silent:
            for logged in missed:
                if logged.kind == stream.kind:
                    stream.lines.put_nowait(logged)
        if self.trouble.brief:
            stream.lines.put_nowait(None)

    async def follow(self, kube: KubePort, namespace: str, told: Told) -> None:
        """As Kopf follows resources in a namespace (empty: anywhere); for ever.

        It lists once. A stream that ends is opened again at the last version that it told of, so
        that an event which was lost stays lost. Only where that version is gone it lists again
        (`continuous_watch` in kopf/_cogs/clients/watching.py, 1.45).
        """
        kind, since = SPECULATIVE_DEPLOYMENT, ""
        while True:
            try:
                if not since:
                    since = await _listed(kube, namespace, told)
                async for event in kube.watch(kind, namespace, "", since, STREAM_S):
                    since = event.version or since
                    if event.type in {EventType.ADDED, EventType.MODIFIED}:
                        _tell(told, event.object)
            except KubeError as error:
                if error.status == HTTPStatus.GONE:
                    since = ""
            await asyncio.sleep(RETRY_S)

    def _changed(self, logged: Logged) -> None:
        if self.trouble.silent:
            return
        for stream in self._open:
            if stream.kind != logged.kind or self._random.random() < self.trouble.dropped:
                continue
            times = 2 if self._random.random() < self.trouble.doubled else 1
            for _ in range(times):
                delay_s = LATENCY_S + self.trouble.late_s
                self._loop.call_later(delay_s, stream.lines.put_nowait, logged)


async def _listed(kube: KubePort, namespace: str, told: Told) -> str:
    """Tell of all there are; the version of the list."""
    version = ""
    async for page in kube.pages(SPECULATIVE_DEPLOYMENT, namespace, ""):
        version = page.resource_version
        for body in page.items:
            _tell(told, body)
    return version


def _line(change: str, body: Mapping[str, Any]) -> bytes:
    return json.dumps({"type": change, "object": body}).encode() + b"\n"


def _tell(told: Told, body: Mapping[str, Any]) -> None:
    metadata = body["metadata"]
    annotations = metadata.get("annotations") or {}
    version = metadata["resourceVersion"]
    told(metadata["namespace"], metadata["name"], metadata["generation"], annotations, version)
