"""All loops of one operator: one task per SpeculativeDeployment, none of which can stop another.

A registry of our own instead of Kopf's daemons, so that no resource needs a finalizer: see
docs/design/0001-loops-without-finalizers.md.
"""

import asyncio
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextvars import Context
from typing import Final

import structlog

from fathom.core.cluster.kinds import ObjectKey
from fathom.core.spread import spread
from fathom.runtime.loop import PACE, RESYNC_S, Loop, Pace
from fathom.runtime.ports import World
from fathom.runtime.turns import Turns

STUCK_AFTER_S: Final = 600.0
"""A loop this late is stuck: every call in a pass has a timeout far below, as has their line."""

_log: Final = structlog.get_logger(__name__)


async def pass_after_pass(loop: Loop, turns: Turns, pace: Pace) -> None:
    """Until the resource is gone.

    Args:
        loop: of the resource.
        turns: for which it waits before each pass.
        pace: of its passes, where it is woken.
    """
    try:
        while True:
            async with turns.one(loop.key, urgent=loop.edited) as waited_s:
                delay_s = await loop.tick()
                while delay_s == 0:
                    # What it decided takes another look, and somebody may wait for it.
                    delay_s = await loop.tick()
            if delay_s is None:
                return
            await loop.sleep(_apart(loop, delay_s, waited_s), pace)
    finally:
        await loop.stop()


def _apart(loop: Loop, delay_s: float, waited_s: float) -> float:
    """How long to sleep, so that those who met do not meet again."""
    if not loop.failing and waited_s and delay_s < RESYNC_S:
        # There is more to do than there is time for: who looks often looks less often.
        return min(RESYNC_S, delay_s + waited_s)
    if loop.failing or waited_s:
        # What fails, often fails for all; and those who waited came all at once.
        return spread(delay_s, str(loop.key))
    return delay_s


class Loops:
    """Starts, wakes and stops loops. All methods belong to one event loop's thread."""

    def __init__(
        self,
        world: World,
        pace: Pace = PACE,
        steady_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """Start with none.

        Args:
            world: what each loop is given.
            pace: of each loop's passes, where it is woken.
            steady_s: seconds of a clock that nobody sets.
        """
        self._world = world
        self._pace = pace
        self._steady_s = steady_s
        self._turns = Turns()
        self._running: dict[ObjectKey, tuple[Loop, asyncio.Task[None]]] = {}
        self._known: set[ObjectKey] = set()
        """What has or had a loop, and so may be shown."""
        self.closed = False
        """Whether none begins any more."""

    def __len__(self) -> int:
        return len(self._running)

    def changed(
        self, key: ObjectKey, generation: int, annotations: Mapping[str, str], version: str
    ) -> None:
        """A SpeculativeDeployment is there, or has changed: its loop runs, and looks again.

        Unless only our own status has changed it.

        Args:
            key: which.
            generation: of it.
            annotations: of it.
            version: of it.
        """
        if key not in self._running:
            self.seen(key)
        elif self._running[key][0].told(generation, annotations, version):
            self._turns.hurry(key)

    def deleted(self, key: ObjectKey) -> None:
        """A SpeculativeDeployment is no more there, as its watch tells: its loop finds out."""
        if key in self._running:
            self._running[key][0].told_deleted()

    def seen(self, key: ObjectKey) -> None:
        """A SpeculativeDeployment is there: its loop runs, and looks again."""
        if key in self._running:
            self._running[key][0].wake()
            return
        if self.closed:
            return
        loop = Loop(key, self._world, self._steady_s)
        passing = pass_after_pass(loop, self._turns, self._pace)
        # In a context of its own: Kopf's holds the event, with all of the resource.
        context = Context()
        task = asyncio.create_task(passing, name=f"loop of {key}", context=context)
        self._running[key] = loop, task
        self._known.add(key)
        self._world.telemetry.looked_after(key, lambda: self._late_s(loop))
        task.add_done_callback(lambda done: self._ended(key, done), context=context)

    def listed(self, namespace: str, found: Collection[ObjectKey]) -> None:
        """All SpeculativeDeployments were listed: each has a loop then, or is forgotten.

        A loop that finds its resource gone forgets it, but not one that was ended before.

        Args:
            namespace: in which they were; empty: anywhere.
            found: all of them.
        """
        for key in found:
            if key not in self._running:
                self.seen(key)
        for key in self._known.difference(self._running):
            if namespace in {"", key.namespace}:
                self._world.telemetry.forget(key)
                self._world.shown.forget(key)
                self._known.remove(key)

    def wake(self, key: ObjectKey) -> None:
        """Something of this resource's has moved; nothing happens if it has no loop."""
        if key in self._running:
            self._running[key][0].wake()

    def overdue(self) -> tuple[ObjectKey, ...]:
        """Loops that should have begun a pass long ago; empty: all is well."""
        latest = self._steady_s() - STUCK_AFTER_S
        return tuple(key for key, (loop, _) in self._running.items() if loop.due_s < latest)

    def _late_s(self, loop: Loop) -> float:
        return max(0.0, self._steady_s() - loop.due_s)

    def close(self) -> None:
        """End every loop where it stands, and begin none any more.

        What they were at, the next operator goes on with.
        """
        self.closed = True
        self._cancel()

    async def stop(self) -> None:
        """End every loop where it stands, and wait until they have ended."""
        await asyncio.gather(*self._cancel(), return_exceptions=True)

    def _cancel(self) -> Sequence[asyncio.Task[None]]:
        tasks = [task for _, task in self._running.values()]
        for task in tasks:
            task.cancel()
        return tasks

    def _ended(self, key: ObjectKey, task: asyncio.Task[None]) -> None:
        loop, _ = self._running.pop(key)
        if task.cancelled():
            return
        if (error := task.exception()) is not None:
            _log.error("loop ended", resource=str(key), error=repr(error))
        if loop.stale:
            # Woken after its last look: what it found gone may be there again.
            self.seen(key)
