"""Tells people what a reconcile found: by events, in the log, on the page."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import structlog

from fathom.adapters.ports import KubeError
from fathom.api import names
from fathom.api.status import SpeculativeDeploymentStatus
from fathom.cluster.events import Event, EventPace, EventReason, Severity
from fathom.cluster.snapshot import Objects
from fathom.measurement.scrape_failures import UnreadPods
from fathom.page.subject import PassReport
from fathom.reconcile.status_input import Findings
from fathom.runtime.ports import World
from fathom.runtime.writer import Writer
from fathom.text import literal_secrets, scrubbed
from fathom.tuning.learned_state import TuningState

_log: Final = structlog.get_logger(__name__)


class Reporter:
    """Tells of one resource: by events, in the log, on the page and in the operator's metrics."""

    def __init__(self, world: World, writer: Writer) -> None:
        self._world = world
        self._writer = writer
        self._pace = EventPace()

    def show(
        self,
        status: SpeculativeDeploymentStatus,
        findings: Findings,
        objects: Objects,
        tuner: TuningState,
    ) -> None:
        """Have the page and the operator's own metrics tell of a status."""
        self._world.telemetry.reported(objects.key, status)
        uid, resource = objects.metadata.uid, objects.resource
        shown = PassReport(
            uid=uid, manifest=resource, status=status, document=findings.document, state=tuner
        )
        self._world.shown.saw(objects.key, shown, findings.now_s)

    def log_refused(self, error: KubeError, objects: Objects) -> None:
        """That the status was not taken."""
        key = objects.key
        self._world.telemetry.failed(key)
        _log.warning(
            "status not written", namespace=key.namespace, name=key.name, error=error.message
        )

    def log_unread(self, before: UnreadPods, after: UnreadPods, objects: Objects) -> None:
        """Whose metrics cannot be read, where that is new."""
        key = objects.key
        if after.sentence and after.sentence != before.sentence:
            _log.warning(
                "metrics not read", namespace=key.namespace, name=key.name, why=after.sentence
            )
        elif before.sentence and not after.sentence:
            _log.info("metrics are read again", namespace=key.namespace, name=key.name)

    async def emit(self, events: Sequence[Event], objects: Objects) -> None:
        """Post events, of each reason so many an hour at most; never raises."""
        now_s, known = self._world.clock.now_s(), literal_secrets(objects.resource)
        self._pace, let = self._pace.let_through(events, now_s)
        clean = [replace(each, message=scrubbed(each.message, known)) for each in let]
        await self._writer.emit(clean, objects.metadata, now_s, self._world.identity)

    async def emit_losses(self, objects: Objects, keys: Sequence[str]) -> None:
        """Say of what was learned and cannot be read that it is begun again."""
        if keys:
            message = (
                f"{' and '.join(keys)} of ConfigMap {names.tuning_config_map(objects.key.name)} "
                "cannot be read: what was learned there starts from scratch."
            )
            await self.emit([Event(Severity.WARNING, EventReason.STATE_RESET, message)], objects)

    async def emit_old_read(self, read: int, acted_upon: int, objects: Objects) -> None:
        """That nothing is done, for an API server that does not catch up."""
        message = (
            f"the API server answers with generation {read} of this resource, and generation "
            f"{acted_upon} was acted upon before: nothing is done until it answers with what is. "
            "If status was restored from a backup, any edit of the spec that brings its generation "
            "beyond that ends this."
        )
        await self.emit([Event(Severity.WARNING, EventReason.STALE_READ, message)], objects)

    async def emit_crash(self, error: Exception, objects: Objects) -> None:
        """An error of our own, where the user of the resource sees it."""
        message = (
            f"Fathom failed on this resource ({type(error).__name__}: {error}); what runs keeps "
            "running, and it tries again. The operator's log has the details: please report it."
        )
        await self.emit([Event(Severity.WARNING, EventReason.INTERNAL_ERROR, message)], objects)
