"""Carries out one pass's decisions: children, depth, and what must survive a restart."""

from collections.abc import Sequence
from dataclasses import dataclass

from fathom.api import names
from fathom.api.resource import SpeculativeDeployment
from fathom.core.capability import live_depth
from fathom.core.depth import DepthDocument
from fathom.core.kinds import CONFIG_MAP, DEPLOYMENT
from fathom.core.plan import Plan, Rendering, plan_of
from fathom.core.snapshot import Objects, Snapshot
from fathom.manifests.tuning_config_map import STATE_KEY
from fathom.runtime.intent import (
    LAST_GOOD_SPEC_KEY,
    REVISION_KEY,
    Intent,
    good_spec_text,
    wanted_revision,
)
from fathom.runtime.memory import Memory
from fathom.runtime.operations import Desired, Operation, depth_nudges, operations
from fathom.runtime.ports import World
from fathom.runtime.reporter import QUIET_S, Reporter
from fathom.runtime.rolling_notice import rolling_notice
from fathom.runtime.writer import Writer
from fathom.tuning.interface import Action, TuningDecision


@dataclass(frozen=True, slots=True)
class Carried:
    """What came of one pass's decisions."""

    plan: Plan
    refusals: tuple[str, ...]
    """Sentences; empty: everything is as it should be, or on its way."""
    document: DepthDocument | None
    """The depths asked for, as they are written; None: this engine's depth is not live."""
    decided: bool
    """Whether the tuner's decision is in the cluster. If not, it was not made: it is made again."""


class Actor:
    """Brings the cluster to what a pass decided, for one resource."""

    def __init__(self, world: World, writer: Writer, reporter: Reporter) -> None:
        self._world = world
        self._writer = writer
        self._reporter = reporter

    async def carry_out(
        self,
        intent: Intent,
        wanted: SpeculativeDeployment,
        snapshot: Snapshot,
        decision: TuningDecision,
        memory: Memory,
    ) -> Carried:
        """Plan, and write what is missing. Idempotent; at rest it writes nothing."""
        objects, now_s = snapshot.objects, snapshot.now_s
        live = live_depth(wanted.spec)
        revision = wanted_revision(wanted.spec, objects.resource, objects.tuning)
        name, bundle = wanted.metadata.name, self._world.bundle
        rendering = Rendering(
            version=self._world.version,
            plugin=names.plugin_config_map(name, bundle.content) if live else "",
            depth=names.depth_config_map(name) if live else "",
        )
        plan = plan_of(objects, wanted.spec, revision, rendering)
        document = decision.document if live else None
        tuning_data = _tuning_data(
            intent, objects, decision, memory, revision=revision, now_s=now_s
        )
        desired = Desired(wanted, bundle, live, document, tuning_data)
        todo = operations(objects, plan, desired)
        if intent.newest and any(each.kind == DEPLOYMENT for each in todo):
            await self._announce(wanted, objects, revision, memory)
        outcome = await self._writer.carry_out(todo, memory.guard)
        if todo:
            memory.objects = None
        if _holds(todo, names.tuning_config_map(name)):
            memory.tuning_written_at_s = now_s
        decided = not _holds(outcome.left, names.depth_config_map(name))
        if not decided:
            document = objects.depth
        elif document is not None:
            await self._tell_engines(objects, document, decision, memory, now_s)
        return Carried(plan, outcome.refusals, document, decided)

    async def _announce(
        self, wanted: SpeculativeDeployment, objects: Objects, revision: str, memory: Memory
    ) -> None:
        if memory.announced_revision == revision:
            return
        happening = rolling_notice(wanted, objects, revision)
        if happening is not None:
            memory.announced_revision = revision
            await self._reporter.tell([happening], objects)

    async def _tell_engines(
        self,
        objects: Objects,
        document: DepthDocument,
        decision: TuningDecision,
        memory: Memory,
        now_s: float,
    ) -> None:
        """After a depth document was written, or when the tuner asks to poke."""
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
            await self._writer.nudge(nudges)


def _holds(operations: Sequence[Operation], config_map: str) -> bool:
    return any(each.kind == CONFIG_MAP and each.name == config_map for each in operations)


def _tuning_data(
    intent: Intent,
    objects: Objects,
    decision: TuningDecision,
    memory: Memory,
    *,
    revision: str,
    now_s: float,
) -> dict[str, str] | None:
    """What should survive a restart; None: what is written will do for now."""
    data = {STATE_KEY: decision.state.to_json()}
    kept = objects.tuning.get(LAST_GOOD_SPEC_KEY)
    good = good_spec_text(objects.resource) if intent.newest else kept
    if good is not None:
        data |= {LAST_GOOD_SPEC_KEY: good, REVISION_KEY: revision}
    if data == dict(objects.tuning):
        return None
    moved = decision.notable and decision.action in {Action.MOVE, Action.PIN, Action.RETURN}
    due = now_s - memory.tuning_written_at_s >= QUIET_S
    return data if due or moved or good != kept else None
