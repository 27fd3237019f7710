"""The loop of one resource, of either kind: what wakes it, when it sleeps, what a failure costs.

Level-triggered: a pass reads what is there and moves it toward what should be there. What woke it
does not matter, and a pass that is cut off anywhere is continued by the next.
"""

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Final

import structlog

from fathom.adapters.ports import KubeError
from fathom.cluster.kinds import ObjectKey
from fathom.cluster.snapshot import TunedObjects
from fathom.reconcile.loop_state import TunedState
from fathom.runtime.gather import Doubt
from fathom.runtime.ports import Pace, World
from fathom.runtime.reporter import Performer, Reporter
from fathom.runtime.writer import Writer
from fathom.times import Backoff, is_over

RESYNC_S: Final = 60.0
"""The longest sleep, and the longest that a read of the cluster is trusted without a sign."""
LONGEST_BACKOFF_S: Final = 300.0

_log: Final = structlog.get_logger(__name__)


class Loop(ABC):
    """Reconciles one resource. One pass at a time; nothing else writes for it."""

    def __init__(
        self, key: ObjectKey, world: World, steady_s: Callable[[], float] = time.monotonic
    ) -> None:
        self.key = key
        self._world = world
        self._writer = Writer(world.kube, world.children, key, world.telemetry)
        self._reporter = Reporter(world, self._writer)
        self._performer = Performer(world, self._writer, self._reporter)
        self._failures = 0
        self._woken = asyncio.Event()
        self._stale = True
        self._doubt = Doubt.NOTHING
        """What of what watches have told will not do for the next read."""
        self._deleted = False
        """Whether the resource is gone, by the last that was heard of it."""
        self.edited = False
        """Whether somebody waits for the next pass."""
        self._log = _log.bind(namespace=key.namespace, name=key.name)
        self._steady_s = steady_s
        self.due_s = steady_s()
        """When the next pass should have begun, for the liveness probe; by the clock that sleeps go
        by: one that is set would make all overdue at once."""

    @property
    @abstractmethod
    def state(self) -> TunedState | None:
        """What is remembered; None: nothing yet."""

    @abstractmethod
    async def _pass(self) -> float | None:
        """One pass: seconds until the next one; None: the resource is gone."""

    @abstractmethod
    async def stop(self) -> None:
        """No pass comes any more."""

    @property
    def failing(self) -> bool:
        """Whether the last pass could not be finished."""
        return self._failures > 0

    @property
    def stale(self) -> bool:
        """Whether it was woken since it last read the cluster, or could not read it."""
        return self._stale

    def wake(self) -> None:
        """Something may have moved: read again, soon."""
        self._stale = True
        self._woken.set()

    def told(self, generation: int, annotations: Mapping[str, str], version: str) -> bool:
        """The resource is there: read again, soon, unless our own status brought this version.

        Returns:
            Whether somebody waits: it was edited since it was acted upon, or asks for something
            else than at the last read.
        """
        state, self._deleted = self.state, False
        if state is not None:
            if version == state.said.version:
                return self.edited
            self.edited |= state.is_edit(generation, annotations)
            # It will be followed by writes, which are not decided on what watches have told.
            if self.edited and self._doubt is Doubt.NOTHING:
                self._doubt = Doubt.PODS
        self.wake()
        return self.edited

    def told_deleted(self) -> None:
        """The resource was deleted: see whether it is gone, soon."""
        self._deleted = True
        self.wake()

    async def sleep(self, delay_s: float, pace: Pace) -> None:
        """Until the next pass is due.

        Args:
            delay_s: in seconds, unless it is woken.
            pace: of passes, where it is woken.
        """
        loop = asyncio.get_running_loop()
        soonest_s = loop.time() + pace.apart_s
        try:
            # Not `wait_for`: before Python 3.12 it may swallow a cancellation that comes together
            # with what wakes it, and the loop would never end.
            async with asyncio.timeout(delay_s):
                await self._woken.wait()
            await asyncio.sleep(max(pace.settle_s, soonest_s - loop.time()))
        except TimeoutError:
            pass

    async def tick(self) -> float | None:
        """One pass; whatever goes wrong in it stays in it.

        Returns:
            Seconds until the next one; None: the resource is gone.
        """
        try:
            with self._world.telemetry.timed():
                delay = await self._pass()
        except KubeError as error:
            self._log.warning("pass not finished", error=error.message, status=error.status)
            # Where reads are old, no watch tells when they are current again.
            delay = self._failed(RESYNC_S if error.outdated else LONGEST_BACKOFF_S)
        except Exception as error:  # noqa: BLE001  # the last resort, logged with its traceback
            # One resource's bug must neither stop the others nor spin.
            self._log.exception("pass failed")
            objects = self.state.objects if self.state else None
            if self._failures == 0 and objects is not None:
                await self._reporter.emit_crash(error, objects)
            delay = self._failed()
        self.due_s = self._steady_s() + (delay or 0)
        return delay

    def _forget(self) -> None:
        """The resource is gone: show it no more."""
        self._world.telemetry.forget(self.key)
        self._world.shown.forget(self.key)

    def _trusts(self, known: TunedObjects | None, now_s: float) -> bool:
        """Whether the last read will do for this pass."""
        return (
            known is not None and not self._stale and not is_over(known.read_at_s, RESYNC_S, now_s)
        )

    def _begin_read(self) -> Doubt:
        """Before the read: what wakes it while it runs, it may have missed.

        Returns:
            What of what watches have told will not do for it.
        """
        doubt, self._doubt = self._doubt, Doubt.NOTHING
        self._stale = self.edited = False
        self._woken.clear()
        return doubt

    def _gone_with_its_role(self, error: KubeError) -> bool:
        """Whether it is gone, as when the operator's Role goes together with the namespace.

        By itself a 403 may be that of a server that is being upgraded.
        """
        return self._deleted and error.forbidden

    def _failed(self, longest_s: float = LONGEST_BACKOFF_S) -> float:
        """Count a failure; seconds until the next try, doubling up to the longest."""
        self._world.telemetry.failed(self.key)
        self._stale, self._doubt = True, Doubt.ALL
        self._failures += 1
        return Backoff(longest_s=longest_s).after(self._failures)
