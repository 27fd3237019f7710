"""Tells people: the status, written once and only if it says something new, and events."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import structlog

from fathom.adapters.ports import KubeError
from fathom.api import names
from fathom.api.conditions import EventReason
from fathom.core.cluster.manifest import Seen
from fathom.core.cluster.snapshot import Objects, Snapshot, status_in
from fathom.core.reporting.event_pace import EventPace
from fathom.core.reporting.events import Event, Severity, transitions
from fathom.core.reporting.findings import Findings
from fathom.core.reporting.status import as_written, status_of
from fathom.core.scrubbing import literal_secrets, scrubbed
from fathom.page.subject import PassReport
from fathom.reconcile.memory import Memory
from fathom.reconcile.pins import BadPin
from fathom.reconcile.writing.retry import Retry
from fathom.runtime.ports import World
from fathom.runtime.writer import Writer

_log: Final = structlog.get_logger(__name__)


class Reporter:
    """Writes one resource's status and its events."""

    def __init__(self, world: World, writer: Writer) -> None:
        self._world = world
        self._writer = writer
        self._pace = EventPace()

    async def report(self, findings: Findings, objects: Objects, memory: Memory) -> float:
        """Write the status if it says something new.

        One that the API server does not take is tried again, less and less often; nothing else
        waits for it, since depth and pods need no status.

        Returns:
            Seconds after which it should be written, where it says something that can wait, or was
            refused; infinity: it says nothing new.

        Raises:
            KubeError: 404 or 409: the resource is gone, or is not what the status is about.
        """
        said, now_s = memory.said, findings.now_s
        # One that came back unreadable still tells since when things are as they are.
        told = objects.status or said.written
        new = status_of(findings, replace(objects, status=told))
        self._world.telemetry.reported(objects.key, new)
        uid, resource = objects.metadata.uid, objects.resource
        shown = PassReport(uid, resource, new, findings.document, memory.state)
        self._world.shown.saw(objects.key, shown, now_s)
        if said.stands(new, objects.status):
            memory.said = replace(said, refused=None)
            return float("inf")
        if (wait_s := said.wait_s(new, objects.status, now_s)) > 0:
            return wait_s
        memory.objects = None
        try:
            after = await self._writer.status(as_written(new), Seen.of(objects.resource))
        except KubeError as error:
            if error.outdated or error.gone:
                raise
            before = said.refused
            retry = before.again(now_s) if before else Retry(now_s)
            memory.said = replace(said, refused=retry)
            lasts = retry.lasting and not (before and before.lasting)
            await self._tell_refused(error, objects, lasts=lasts)
            return retry.pause_s
        kept, version = status_in(after), Seen.of(after).resource_version
        # One object for both, as they are most often equal.
        shared = new if kept == new else kept
        memory.said = said.after(new, kept=shared, version=version, now_s=now_s)
        await self.emit(transitions(new, said.written or objects.status), objects)
        return float("inf")

    async def _tell_refused(self, error: KubeError, objects: Objects, *, lasts: bool) -> None:
        """In the log; once it has lasted, where else it can still be said, too."""
        key = objects.key
        self._world.telemetry.failed(key)
        _log.warning(
            "status not written", namespace=key.namespace, name=key.name, error=error.message
        )
        if not lasts:
            return
        message = (
            "the status of this resource cannot be written, and says what was; pods and depth are "
            f"looked after all the same. {names.PLURAL}/status is for the operator to patch: does "
            "its role allow it, which policy or webhook refuses it, is the CRD as new as the "
            f"operator? The API server says: {error.message}"
        )
        await self.emit([Event(Severity.WARNING, EventReason.STATUS_REFUSED, message)], objects)

    def log_unread(self, snapshot: Snapshot, memory: Memory) -> None:
        """Remember whose metrics cannot be read; what is new of that goes into the log."""
        before, pods = memory.unread.sentence, {pod.name for pod in snapshot.objects.leaders}
        memory.unread = memory.unread.after(snapshot.metrics_failures, pods, snapshot.now_s)
        now, key = memory.unread.sentence, snapshot.objects.key
        if now and now != before:
            _log.warning("metrics not read", namespace=key.namespace, name=key.name, why=now)
        elif before and not now:
            _log.info("metrics are read again", namespace=key.namespace, name=key.name)

    async def emit(self, events: Sequence[Event], objects: Objects) -> None:
        """Post events, of each reason so many an hour at most; never raises."""
        now_s, known = self._world.clock.now_s(), literal_secrets(objects.resource)
        self._pace, let = self._pace.let_through(events, now_s)
        clean = [replace(each, message=scrubbed(each.message, known)) for each in let]
        await self._writer.emit(clean, objects.metadata, now_s, self._world.identity)

    async def emit_ignored_pins(
        self, bad: Sequence[BadPin], objects: Objects, memory: Memory
    ) -> None:
        """Say once of each pin that it is ignored, and why."""
        fresh = [each for each in bad if (each.pod, each.value) not in memory.warned_pins]
        memory.warned_pins = {(each.pod, each.value) for each in bad}
        events = [Event(Severity.WARNING, EventReason.PIN_IGNORED, each.message) for each in fresh]
        await self.emit(events, objects)

    async def emit_losses(self, objects: Objects, keys: Sequence[str]) -> None:
        """Say of what was learnt and cannot be read that it is begun anew."""
        if keys:
            message = (
                f"{' and '.join(keys)} of ConfigMap {names.tuning_config_map(objects.key.name)} "
                "cannot be read: what was learnt there is begun anew."
            )
            await self.emit([Event(Severity.WARNING, EventReason.BEGUN_ANEW, message)], objects)

    async def emit_old_read(self, read: int, acted_upon: int, objects: Objects) -> None:
        """That nothing is done, for an API server that does not catch up."""
        message = (
            f"the API server answers with generation {read} of this resource, and generation "
            f"{acted_upon} was acted upon before: nothing is done until it answers with what is. "
            "If status was restored from a backup, any edit of the spec that brings its generation "
            "beyond that ends this."
        )
        await self.emit([Event(Severity.WARNING, EventReason.OUTDATED_READ, message)], objects)

    async def emit_crash(self, error: Exception, objects: Objects) -> None:
        """An error of our own, where the user of the resource sees it."""
        message = (
            f"Fathom failed on this resource ({type(error).__name__}: {error}); what runs keeps "
            "running, and it tries again. The operator's log has the details: please report it."
        )
        await self.emit([Event(Severity.WARNING, EventReason.INTERNAL_ERROR, message)], objects)
