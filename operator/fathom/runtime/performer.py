"""Performs what a reconcile decided, beside the writes that it is made of."""

from typing import Final

from fathom.adapters.ports import KubeError
from fathom.cluster.events import Event, EventReason, Severity
from fathom.cluster.manifest import Seen
from fathom.cluster.snapshot import Objects
from fathom.reconcile.applied import (
    NEVER_S,
    Applied,
    after_refused,
    after_written,
    guarded,
    status_step,
)
from fathom.reconcile.loop_state import LoopState
from fathom.reconcile.status import as_written
from fathom.reconcile.status_input import Findings
from fathom.reconcile.step import after_kept, after_restart, kept
from fathom.runtime.ports import World
from fathom.runtime.reporter import Reporter
from fathom.runtime.writer import Writer

NUDGES_S: Final = 5.0
"""For all pods of a resource; the tuner asks again for those that do not follow."""


class Performer:
    """For one resource. Each method returns what is remembered after it."""

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
        if came.nudges:
            # Best effort: kubelets refresh by themselves in the end. Until a reconcile ends nobody
            # looks at what the new depth does, so that an API server which hangs for each pod must
            # not keep it.
            await self._writer.attempt_all(came.nudges, NUDGES_S)
        return state

    async def keep(self, state: LoopState, objects: Objects, now_s: float) -> LoopState:
        """Write what should survive a restart, where there is no spec to carry out."""
        if (write := kept(state, objects)) is None:
            return state
        operations = guarded([write], state.guard, now_s)
        outcome = await self._writer.carry_out(operations.tried)
        return after_kept(state, operations, outcome, now_s)

    async def report(
        self, state: LoopState, findings: Findings, objects: Objects
    ) -> tuple[LoopState, float, tuple[Event, ...]]:
        """Write the status if it says something new.

        One that the API server does not take is tried again, less and less often; nothing else
        waits for it, since depth and pods need no status.

        Returns:
            What is remembered; seconds after which it should be written, where it says something
            that can wait, or was refused (infinity: it says nothing new); and what to tell once the
            first is remembered, since what was written comes back by a watch at once.

        Raises:
            KubeError: 404 or 409: the resource is gone, or is not what the status is about.
        """
        now_s, due = findings.now_s, status_step(state, findings, objects)
        self._reporter.show(due.status, findings, objects, due.state.tuner)
        if due.wait_s > 0:
            return due.state, due.wait_s, ()
        try:
            written = await self._writer.status(as_written(due.status), Seen.of(objects.resource))
        except KubeError as error:
            if error.outdated or error.gone:
                raise
            state, retry, events = after_refused(due.state, error.message, now_s)
            self._reporter.log_refused(error, objects)
            return state, retry.pause_s, events
        state, events = after_written(due.state, due.status, written, objects, now_s=now_s)
        return state, NEVER_S, events
