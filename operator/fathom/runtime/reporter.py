"""Tells people: the status, written once and only if it says something new, and events."""

from collections.abc import Sequence

from fathom.api import names
from fathom.core.cluster.manifest import Seen
from fathom.core.cluster.snapshot import Objects
from fathom.core.events import Event, Severity, transitions
from fathom.core.findings import Findings
from fathom.core.status import as_written, same, status_of, urgent
from fathom.core.times import is_over
from fathom.reconcile.memory import QUIET_S, Memory
from fathom.reconcile.pins import BadPin
from fathom.runtime.ports import World
from fathom.runtime.writer import Writer


class Reporter:
    """Writes one resource's status and its events."""

    def __init__(self, world: World, writer: Writer) -> None:
        self._world = world
        self._writer = writer

    async def report(self, findings: Findings, objects: Objects, memory: Memory) -> float:
        """Write the status if it says something new.

        Returns:
            Seconds after which it should be written, where it says something that can wait;
            infinity: it says nothing new.

        Raises:
            KubeError: it could not be written.
        """
        new = status_of(findings, objects)
        if same(new, objects.status):
            return float("inf")
        may_wait = not is_over(memory.status_written_at_s, QUIET_S, findings.now_s)
        if may_wait and not urgent(new, objects.status):
            return memory.status_written_at_s + QUIET_S - findings.now_s
        await self._writer.status(as_written(new), Seen.of(objects.resource))
        memory.objects = None
        memory.status_written_at_s = findings.now_s
        await self.emit(transitions(new, objects.status), objects)
        return float("inf")

    async def emit(self, events: Sequence[Event], objects: Objects) -> None:
        """Post events; never raises."""
        now_s = self._world.clock.now_s()
        await self._writer.emit(events, objects.metadata, now_s, self._world.identity)

    async def emit_ignored_pins(
        self, bad: Sequence[BadPin], objects: Objects, memory: Memory
    ) -> None:
        """Say once of each pin that it is ignored, and why."""
        fresh = [each for each in bad if (each.pod, each.value) not in memory.warned_pins]
        memory.warned_pins = {(each.pod, each.value) for each in bad}
        events = [Event(Severity.WARNING, "PinIgnored", each.message) for each in fresh]
        await self.emit(events, objects)

    async def emit_losses(self, objects: Objects, keys: Sequence[str]) -> None:
        """Say of what was learnt and cannot be read that it is begun anew."""
        if keys:
            message = (
                f"{' and '.join(keys)} of ConfigMap {names.tuning_config_map(objects.key.name)} "
                "cannot be read: what was learnt there is begun anew."
            )
            await self.emit([Event(Severity.WARNING, "BegunAnew", message)], objects)

    async def emit_old_read(self, read: int, acted_upon: int, objects: Objects) -> None:
        """That nothing is done, for an API server that does not catch up."""
        message = (
            f"the API server answers with generation {read} of this resource, and generation "
            f"{acted_upon} was acted upon before: nothing is done until it answers with what is. "
            "If status was restored from a backup, any edit of the spec that brings its generation "
            "beyond that ends this."
        )
        await self.emit([Event(Severity.WARNING, "OutdatedRead", message)], objects)

    async def emit_crash(self, error: Exception, objects: Objects) -> None:
        """An error of our own, where the user of the resource sees it."""
        message = (
            f"Fathom failed on this resource ({type(error).__name__}: {error}); what runs keeps "
            "running, and it tries again. The operator's log has the details: please report it."
        )
        await self.emit([Event(Severity.WARNING, "InternalError", message)], objects)
