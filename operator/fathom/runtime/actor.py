"""Carries out one pass's decisions: children, depth, and what must survive a restart."""

from collections.abc import Iterator, Sequence
from typing import Final

from fathom.api import names
from fathom.api.conditions import EventReason
from fathom.core.cluster.kinds import CONFIG_MAP, POD, Kind
from fathom.core.cluster.snapshot import Objects, Snapshot
from fathom.core.reporting.events import Event, Severity
from fathom.engine.depth import DepthDocument
from fathom.manifests.children.tuning_config_map import tuning_config_map
from fathom.reconcile.desired_state import DesiredState
from fathom.reconcile.intent import newest_of
from fathom.reconcile.kept_state import state_data
from fathom.reconcile.memory import Memory
from fathom.reconcile.writing.operations import (
    Create,
    Delete,
    Operation,
    brought_about,
    deleted,
    depth_nudges,
)
from fathom.reconcile.writing.writes import Carried, Writes, is_written, writes_of
from fathom.resource import SpeculativeDeployment
from fathom.runtime.ports import World
from fathom.runtime.reporter import Reporter
from fathom.runtime.writer import Outcome, Writer
from fathom.tuning.interface import Action, TuningDecision

NUDGES_S: Final = 5.0
"""For all pods of a resource; the tuner asks again for those that do not follow."""


class Actor:
    """Brings the cluster to what a pass decided, for one resource."""

    def __init__(self, world: World, writer: Writer, reporter: Reporter) -> None:
        self._world = world
        self._writer = writer
        self._reporter = reporter

    async def carry_out(
        self,
        desired: DesiredState,
        snapshot: Snapshot,
        decision: TuningDecision,
        memory: Memory,
    ) -> Carried | None:
        """Plan, and write what is missing. Idempotent; at rest it writes nothing.

        Returns:
            What came of it; None: nothing was done, since it takes a look at the API server itself.
        """
        objects, now_s, name = snapshot.objects, snapshot.now_s, desired.sd.metadata.name
        writes = writes_of(
            desired,
            snapshot,
            decision,
            memory,
            bundle=self._world.bundle,
            program=self._world.program,
        )
        # What is made for a new resource needs no look: it is refused where it is there already.
        # The lists of a sync that makes a thousand resources would hold up all writes.
        hearsay = objects.from_watches and not objects.untouched
        if hearsay and writes.need_a_look(memory.guard, now_s):
            return None
        await self._reporter.emit(desired.events, objects)
        outcome = await self._writer.carry_out(writes.todo, memory.guard, now_s)
        if (ended := writes.bench_ended) is not None and ended in outcome.written:
            sentence = f"Job {ended.name} was deleted: {ended.why}"
            await self._reporter.emit(
                [Event(Severity.NORMAL, EventReason.BENCH_ENDED, sentence)], objects
            )
        left = (*outcome.left, *writes.barred)
        memory.unlisted = frozenset({*writes.unlisted, *_unseen(outcome)})
        if outcome.tried or any(each.left_behind for each in writes.taken):
            memory.objects = None
        if _holds(writes.todo, names.tuning_config_map(name)):
            memory.tuning_written_at_s = now_s
        refresh, document = writes.refresh, writes.document
        if refresh.pod is not None and not _holds(left, names.tuning_config_map(name)):
            # Only once its record is written: a second one must not follow by mistake.
            await self._refresh(refresh.pod, refresh.why, objects, memory)
        decided = not _holds(left, names.depth_config_map(name))
        if not decided:
            document = objects.depth
        elif document is not None:
            await self._nudge_engines(objects, document, decision, memory, now_s)
        return Carried(
            writes.plan,
            outcome.refusals,
            document,
            decided,
            refresh,
            writes.checkpoint,
            taken=writes.taken,
            goes_on=_goes_on(writes, outcome, objects),
            outdated=outcome.outdated is not None,
            broken_off=outcome.broken_off,
            retry_after_s=memory.guard.retry_after_s(now_s),
        )

    async def keep(self, objects: Objects, memory: Memory, now_s: float) -> None:
        """Write what should survive a restart, of a pass that has no spec to carry out."""
        newest = newest_of(objects.resource)
        if not isinstance(newest, SpeculativeDeployment) or is_written(memory.checkpoint, objects):
            return
        data = {**state_data(memory.state), **memory.checkpoint.data()}
        write = brought_about(objects, CONFIG_MAP, tuning_config_map(newest, data))
        if write is not None and (write.kind, write.name) not in objects.foreign:
            await self._writer.carry_out([write], memory.guard, now_s)
            memory.objects = None
            memory.tuning_written_at_s = now_s

    async def _refresh(self, pod: str, why: str, objects: Objects, memory: Memory) -> None:
        if await self._writer.attempt(deleted(objects, POD, pod, why)):
            memory.objects = None
            event = Event(Severity.NORMAL, EventReason.REFRESHING, why)
            await self._reporter.emit([event], objects)

    async def _nudge_engines(
        self,
        objects: Objects,
        document: DepthDocument,
        decision: TuningDecision,
        memory: Memory,
        now_s: float,
    ) -> None:
        """After a depth document was written, or when the tuner asks for another nudge."""
        self._world.telemetry.depth(objects.key, document)
        changed = objects.depth is None or objects.depth.generation != document.generation
        if changed:
            memory.wrote_document(document, now_s)
        again_at_s = now_s if decision.action is Action.POKE else None
        if not changed and again_at_s is None:
            return
        nudges = depth_nudges(objects, objects.depth, document, again_at_s=again_at_s)
        if nudges:
            memory.objects = None
        # Best effort: kubelets refresh by themselves in the end. Until a pass ends nobody looks at
        # what the new depth does, so that an API server which hangs for each pod must not keep it.
        await self._writer.attempt_all(nudges, NUDGES_S)


def _goes_on(writes: Writes, outcome: Outcome, objects: Objects) -> bool:
    """Whether a next step may follow from what was written, of which no watch tells."""
    if _holds(outcome.written, names.tuning_config_map(objects.key.name)) and not is_written(
        writes.checkpoint, objects
    ):
        return True
    # Of a deletion a watch tells, once it is done; until then it would be done again.
    return any(each.kind != CONFIG_MAP and not isinstance(each, Delete) for each in outcome.written)


def _unseen(outcome: Outcome) -> Iterator[tuple[Kind, str]]:
    """What may be there although the look did not show it: one creation was refused for that."""
    if isinstance(outcome.outdated, Create):
        yield from ((each.kind, each.name) for each in outcome.left if isinstance(each, Create))


def _holds(operations: Sequence[Operation], config_map: str) -> bool:
    return any(each.kind == CONFIG_MAP and each.name == config_map for each in operations)
