"""Tells people what a reconcile found: by events, in the log, on the page, in the status.

And performs what it decided beside the writes that it is made of.
"""

from collections.abc import Sequence
from typing import Final

import structlog

from fathom.adapters.ports import KubeError
from fathom.api.status import ReportedStatus
from fathom.cluster.events import Event, EventPace, EventReason, Severity
from fathom.cluster.manifest import Seen
from fathom.cluster.snapshot import Objects, TunedObjects
from fathom.engine.depth import DepthDocument
from fathom.measurement.counters import UnreadPods
from fathom.reconcile.applied import (
    Applied,
    after_refused,
    after_written,
    guarded,
    status_step,
)
from fathom.reconcile.loop_state import LoopState, State
from fathom.reconcile.operations import Patch
from fathom.reconcile.status import as_written
from fathom.reconcile.step import after_kept, after_restart, without_spec
from fathom.runtime.caches import PassReport
from fathom.runtime.ports import World
from fathom.runtime.writer import Writer
from fathom.text import literal_secrets
from fathom.times import NEVER_S
from fathom.tuning.learned_state import TuningState

NUDGES_S: Final = 5.0
"""For all pods of a resource; the tuner asks again for those that do not follow."""
_log: Final = structlog.get_logger(__name__)


class Reporter:
    """Tells of one resource: by events, in the log, on the page and in the operator's metrics."""

    def __init__(self, world: World, writer: Writer) -> None:
        self._world = world
        self._writer = writer
        self._pace = EventPace()

    def show(
        self,
        status: ReportedStatus,
        objects: TunedObjects,
        *,
        document: DepthDocument | None,
        tuner: TuningState,
        now_s: float,
    ) -> None:
        """Have the page and the operator's own metrics tell of a status.

        Args:
            status: as it is reported.
            objects: the resource, as it was read.
            document: in force; None: none.
            tuner: what was learned.
            now_s: of the pass (Unix seconds).
        """
        self._world.telemetry.reported(objects.key, status, self._world.clock.now_s())
        self._world.telemetry.pods(objects.key, (pod.name for pod in objects.leaders))
        uid, resource = objects.metadata.uid, objects.resource
        shown = PassReport(
            uid=uid, manifest=resource, status=status, document=document, state=tuner
        )
        self._world.shown.saw(objects.key, shown, now_s)

    def log_refused(self, error: KubeError, objects: TunedObjects) -> None:
        """That the status was not taken."""
        key = objects.key
        self._world.telemetry.failed(key)
        _log.warning(
            "status not written", namespace=key.namespace, name=key.name, error=error.message
        )

    def log_unread(self, before: UnreadPods, after: UnreadPods, objects: TunedObjects) -> None:
        """Whose metrics cannot be read, where that is new."""
        key = objects.key
        if after.sentence and after.sentence != before.sentence:
            _log.warning(
                "metrics not read", namespace=key.namespace, name=key.name, why=after.sentence
            )
        elif before.sentence and not after.sentence:
            _log.info("metrics are read again", namespace=key.namespace, name=key.name)

    async def emit(self, events: Sequence[Event], objects: TunedObjects) -> None:
        """Post events, of each reason so many an hour at most; never raises."""
        now_s, known = self._world.clock.now_s(), literal_secrets(objects.resource)
        self._pace, let = self._pace.let_through(events, now_s)
        clean = [each.without(known) for each in let]
        await self._writer.emit(clean, objects.metadata, now_s, self._world.identity)

    async def emit_losses(
        self, objects: TunedObjects, keys: Sequence[str], config_map: str
    ) -> None:
        """Say of what was learned and cannot be read that it is begun again.

        Args:
            objects: the resource, as it was read.
            keys: of what cannot be read.
            config_map: in which that is.
        """
        if keys:
            message = (
                f"{' and '.join(keys)} of ConfigMap {config_map} "
                "cannot be read: what was learned there starts from scratch."
            )
            await self.emit([Event(Severity.WARNING, EventReason.STATE_RESET, message)], objects)

    async def emit_old_read(self, read: int, acted_upon: int, objects: TunedObjects) -> None:
        """That nothing is done, for an API server that does not catch up."""
        message = (
            f"the API server answers with generation {read} of this resource, and generation "
            f"{acted_upon} was acted upon before: nothing is done until it answers with what is. "
            "If status was restored from a backup, any edit of the spec that brings its generation "
            "beyond that ends this."
        )
        await self.emit([Event(Severity.WARNING, EventReason.STALE_READ, message)], objects)

    async def emit_crash(self, error: Exception, objects: TunedObjects) -> None:
        """An error of our own, where the user of the resource sees it."""
        message = (
            f"Fathom failed on this resource ({type(error).__name__}: {error}); what runs keeps "
            "running, and it tries again. The operator's log has the details: please report it."
        )
        await self.emit([Event(Severity.WARNING, EventReason.INTERNAL_ERROR, message)], objects)


class Performer:
    """Performs what was decided, for one resource.

    Each method returns what is remembered after it.
    """

    def __init__(self, world: World, writer: Writer, reporter: Reporter) -> None:
        self._world = world
        self._writer = writer
        self._reporter = reporter

    async def follow(self, state: LoopState, came: Applied, objects: Objects) -> LoopState:
        """Restart the pod that is due, and have kubelets refresh a new depth document."""
        if came.restart is not None and await self._writer.attempt(came.restart):
            state = after_restart(state)
            event = Event(Severity.NORMAL, EventReason.REFRESHING, came.restart.why)
            await self._reporter.emit([event], objects)
        if came.decided and came.document is not None:
            self._world.telemetry.depth(objects.key, came.document)
        await self.nudge(came.nudges)
        return state

    async def nudge(self, nudges: Sequence[Patch]) -> None:
        """Have kubelets refresh a new depth document; they do so by themselves in the end.

        Until a reconcile ends nobody sees what the new depth does, so that an API server which
        hangs for each pod must not keep it.
        """
        if nudges:
            await self._writer.attempt_all(nudges, NUDGES_S)

    async def keep(self, state: LoopState, objects: Objects, now_s: float) -> LoopState:
        """Write what should survive a restart, where there is no spec to carry out.

        And have the Service select what serves.
        """
        operations = guarded(without_spec(state, objects), state.guard, now_s)
        if not operations.tried:
            return state
        outcome = await self._writer.carry_out(operations.tried)
        return after_kept(state, operations, outcome, now_s)

    async def report(
        self, state: State, new: ReportedStatus, objects: TunedObjects, now_s: float
    ) -> tuple[State, float, tuple[Event, ...]]:
        """Write the status if it says something new, or was not written for ten minutes.

        One that the API server does not take is tried again, less and less often; nothing else
        waits for it, since depth and pods need no status.

        Args:
            state: what is remembered.
            new: the status as it should be.
            objects: the resource, as it was read.
            now_s: Unix seconds.

        Returns:
            What is remembered; seconds after which it should be written, where it says something
            that can wait, or was refused (infinity: it says nothing new); and what to tell once the
            first is remembered, since what was written comes back by a watch at once.

        Raises:
            KubeError: 404 or 409: the resource is gone, or is not what the status is about.
        """
        state, wait_s = status_step(state, new, objects.status, now_s)
        if wait_s > 0:
            return state, wait_s, ()
        try:
            written = await self._writer.status(as_written(new), Seen.of(objects.resource))
        except KubeError as error:
            if error.outdated or error.gone:
                raise
            state, retry, events = after_refused(state, objects.key.kind, error.message, now_s)
            self._reporter.log_refused(error, objects)
            return state, retry.pause_s, events
        state, events = after_written(state, new, written, objects, now_s=now_s)
        return state, NEVER_S, events
