"""All loops of one operator: one task per resource, none of which can stop another.

A registry of our own instead of Kopf's daemons, so that no resource needs a finalizer: see
docs/design/0001-loops-without-finalizers.md.

All share one event loop. Of passes that run at the same time each waits for all others at each
step, so that the fewer begin together, the sooner each ends; none is later for it than it would be.
"""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from contextvars import Context
from typing import Final

import structlog

from fathom.cluster.kinds import (
    SPECULATION_TUNER,
    SPECULATIVE_DEPLOYMENT,
    Kind,
    ObjectKey,
)
from fathom.runtime.deployment_loop import DeploymentLoop
from fathom.runtime.loop import RESYNC_S, Loop
from fathom.runtime.ports import PACE, Pace, World
from fathom.runtime.tuner_loop import TunerLoop
from fathom.times import spread

PASSES_AT_ONCE: Final = 16
BESIDE_URGENT: Final = 2
"""Number of them that continue during an urgent one: it shall have the processor almost for itself.
But whoever writes to a resource again and again must not stop the rest."""
PASSED_ON_AFTER_S: Final = 1.0
"""A pass that takes longer waits for others, such as for pods that hang, and no longer for us: its
turn is the next one's."""

_Line = dict[ObjectKey, "asyncio.Future[bool]"]
"""Who waits; each is told whether the turn that it gets is an urgent one."""
STUCK_AFTER_S: Final = 600.0
"""A loop this late is stuck: every call in a pass has a timeout far below, as has their line."""
_LOOPS: Final[Mapping[Kind, Callable[[ObjectKey, World, Callable[[], float]], Loop]]] = {
    SPECULATIVE_DEPLOYMENT: DeploymentLoop,
    SPECULATION_TUNER: TunerLoop,
}
_log: Final = structlog.get_logger(__name__)


class Turns:
    """A line for what is urgent, and one for everything else; each first come, first served."""

    def __init__(
        self, at_once: int = PASSES_AT_ONCE, passed_on_after_s: float = PASSED_ON_AFTER_S
    ) -> None:
        """All turns are free.

        Args:
            at_once: passes that have a turn at the same time.
            passed_on_after_s: seconds after which a turn is the next one's, its pass going on.
        """
        self._at_once = at_once
        self._passed_on_after_s = passed_on_after_s
        self._held = Counter[bool]()
        """Turns, by whether they are urgent."""
        self._lines: dict[bool, _Line] = {True: {}, False: {}}

    @asynccontextmanager
    async def one(self, key: ObjectKey, *, urgent: bool) -> AsyncIterator[float]:
        """Have a turn for the length of the block.

        Args:
            key: whose it is. No one waits for two.
            urgent: whether it comes before all that are not.

        Yields:
            Seconds for which it had to wait; 0: it had not.
        """
        loop, waited_s, held = asyncio.get_running_loop(), 0.0, True
        if self._is_free(urgent=urgent):
            self._held[urgent] += 1
        else:
            came_s = loop.time()
            urgent = await self._wait(key, self._lines[urgent])
            waited_s = loop.time() - came_s

        def pass_on() -> None:
            nonlocal held
            if held:
                held = False
                self._held[urgent] -= 1
                self._fill()

        timer = loop.call_later(self._passed_on_after_s, pass_on)
        try:
            yield waited_s
        finally:
            timer.cancel()
            pass_on()

    def hurry(self, key: ObjectKey) -> None:
        """What waits is urgent now; nothing happens if it does not wait."""
        if (waiting := self._lines[False].pop(key, None)) is not None:
            self._lines[True][key] = waiting
            self._fill()

    async def _wait(self, key: ObjectKey, line: _Line) -> bool:
        waiting: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        line[key] = waiting
        try:
            return await waiting
        except asyncio.CancelledError:
            for each in self._lines.values():
                each.pop(key, None)
            if not waiting.cancelled():
                # It was its turn at that very moment.
                self._held[waiting.result()] -= 1
            self._fill()
            raise

    def _is_free(self, *, urgent: bool) -> bool:
        if self._held.total() >= self._at_once:
            return False
        beside_urgent = self._held[True] > 0 or bool(self._lines[True])
        return urgent or not beside_urgent or self._held[False] < BESIDE_URGENT

    def _fill(self) -> None:
        # Who is not urgent first: of them few have a turn, or none is urgent.
        for kind in (False, True):
            line = self._lines[kind]
            while line and self._is_free(urgent=kind):
                waiting = line.pop(next(iter(line)))
                if not waiting.done():  # else it has just been cancelled
                    self._held[kind] += 1
                    waiting.set_result(kind)


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
        """A resource is there, or has changed: its loop runs, and reads again.

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
        """A resource is no more there, as its watch tells: its loop finds out."""
        if key in self._running:
            self._running[key][0].told_deleted()

    def seen(self, key: ObjectKey) -> None:
        """A resource is there: its loop runs, and reads again."""
        if key in self._running:
            self._running[key][0].wake()
            return
        if self.closed:
            return
        loop = _LOOPS[key.kind](key, self._world, self._steady_s)
        passing = pass_after_pass(loop, self._turns, self._pace)
        # In a context of its own: Kopf's holds the event, with all of the resource.
        context = Context()
        task = asyncio.create_task(passing, name=f"loop of {key}", context=context)
        self._running[key] = loop, task
        self._known.add(key)
        self._world.telemetry.looked_after(key, lambda: self._late_s(loop))
        task.add_done_callback(lambda done: self._ended(key, done), context=context)

    def listed(self, kind: Kind, namespace: str, found: Collection[ObjectKey]) -> None:
        """All resources of a kind were listed: each has a loop then, or is forgotten.

        A loop that finds its resource gone forgets it, but not one that was ended before.

        Args:
            kind: of them.
            namespace: in which they were; empty: anywhere.
            found: all of them.
        """
        for key in found:
            if key not in self._running:
                self.seen(key)
        for key in self._known.difference(self._running):
            if key.kind == kind and namespace in {"", key.namespace}:
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
