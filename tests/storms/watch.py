"""Watches of a history, as Kopf keeps them: a list, then events, and a new stream when one ends."""

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from fathom.adapters.ports import KubeError, KubePort
from fathom.core.cluster.kinds import Kind
from storms.server import Objects
from storms.simulated_time import Process

LATENCY_S: Final = 0.02
INACTIVITY_S: Final = 70.0
"""Kopf's own: a stream that is silent for longer than between two bookmarks is opened anew."""
RETRY_S: Final = 1.0
_ENDED: Final[Mapping[str, Any]] = {}

Told = Callable[[str, str, Mapping[str, str]], None]
"""Namespace, name and labels of an object that is there or has changed."""


@dataclass
class WatchTrouble:
    """What is wrong with watches now, by deeds."""

    dropped: float = 0.0
    """Probability that an event is lost."""
    doubled: float = 0.0
    late_s: float = 0.0
    """Extra time of each event."""
    silent: bool = False
    """Nothing arrives, and the streams stay open."""


class Watches:
    """All open streams."""

    def __init__(self, loop: asyncio.AbstractEventLoop, objects: Objects, seed: int) -> None:
        self._loop = loop
        self._objects = objects
        self._random = random.Random(seed)
        self._open: list[tuple[Process, Kind, asyncio.Queue[Mapping[str, Any]], Any]] = []
        self.trouble = WatchTrouble()
        objects.changed.append(self._changed)

    def cut(self) -> None:
        """End all streams, as with 410 or when the API server restarts."""
        for _, _, queue, _ in self._open:
            queue.put_nowait(_ENDED)

    async def follow(
        self, who: Process, kube: KubePort, kind: Kind, selector: str, told: Told
    ) -> None:
        """List, then tell of each event; for ever."""
        while True:
            queue: asyncio.Queue[Mapping[str, Any]] = asyncio.Queue()
            stream = (who, kind, queue, asyncio.current_task())
            self._open.append(stream)
            try:
                listed = await kube.select(kind, "", selector)
                for body in listed:
                    _tell(told, body)
                self._catch_up(kind, listed, queue)
                await self._stream(queue, told, selector)
            except KubeError:
                await asyncio.sleep(RETRY_S)
            except TimeoutError:
                pass
            finally:
                self._open.remove(stream)

    def _catch_up(
        self, kind: Kind, listed: Sequence[Mapping[str, Any]], queue: asyncio.Queue[Any]
    ) -> None:
        """A stream begins where its list ends, also after a list of an older state."""
        known = {each["metadata"]["resourceVersion"] for each in listed}
        if not self.trouble.silent:
            for body in self._objects.each(kind):
                if body["metadata"]["resourceVersion"] not in known:
                    queue.put_nowait(body)

    async def _stream(
        self, queue: asyncio.Queue[Mapping[str, Any]], told: Told, selector: str
    ) -> None:
        while True:
            async with asyncio.timeout(INACTIVITY_S):
                body = await queue.get()
            if body is _ENDED:
                return
            if "bookmark" in body:
                continue
            if selector in {"", *(body["metadata"].get("labels") or {})}:
                _tell(told, body)

    def bookmark(self) -> None:
        """Once a minute, so that streams without events are known to live."""
        if not self.trouble.silent:
            for _, _, queue, _ in self._open:
                queue.put_nowait({"bookmark": True})

    def _changed(self, kind: Kind, _: str, __: str, body: Mapping[str, Any] | None) -> None:
        if body is None or self.trouble.silent:
            return
        for _, each, queue, _ in self._open:
            if each != kind or self._random.random() < self.trouble.dropped:
                continue
            times = 2 if self._random.random() < self.trouble.doubled else 1
            for _ in range(times):
                self._loop.call_later(LATENCY_S + self.trouble.late_s, queue.put_nowait, body)


def _tell(told: Told, body: Mapping[str, Any]) -> None:
    metadata = body["metadata"]
    told(metadata["namespace"], metadata["name"], metadata.get("labels") or {})
