"""Carries out one pass's decisions: children, depth, and what must survive a restart."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from fathom.api import names
from fathom.api.resource import SpeculativeDeployment, parse
from fathom.core.capability import live_depth
from fathom.core.depth import DepthDocument
from fathom.core.events import Happening, Severity
from fathom.core.fetch import FetchStage
from fathom.core.kinds import CONFIG_MAP, POD, Kind
from fathom.core.ownership import Taken, left_behind
from fathom.core.plan import Plan, Rendering, plan_of, workload_kind
from fathom.core.snapshot import Objects, Snapshot
from fathom.core.times import is_over
from fathom.manifests.cache import fetched_by
from fathom.manifests.children.tuning_config_map import STATE_KEY, tuning_config_map
from fathom.rollout.refresh import Refresh
from fathom.runtime.course import Course
from fathom.runtime.fetch_operations import fetch_operations
from fathom.runtime.kept import KEYS, Kept
from fathom.runtime.memory import Memory
from fathom.runtime.operations import (
    Create,
    Desired,
    Operation,
    brought_about,
    deleted,
    depth_nudges,
    operations,
)
from fathom.runtime.ports import World
from fathom.runtime.refreshing import refresh_of
from fathom.runtime.reporter import QUIET_S, Reporter
from fathom.runtime.writer import Outcome, Writer
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
    refresh: Refresh
    """Which replica was restarted for its age, or why none."""
    kept: Kept
    """What should survive a restart."""
    taken: tuple[Taken, ...] = ()
    """Names that something else bears."""
    outdated: bool = False
    """Whether the cluster was found in another state than the one that all this was decided on."""
    broken_off: bool = False
    """Whether a write failed in a way that may pass by itself, so that others were not tried."""
    retry_after_s: float = float("inf")
    """Seconds until a write that was refused for good may be tried again."""


class Actor:
    """Brings the cluster to what a pass decided, for one resource."""

    def __init__(self, world: World, writer: Writer, reporter: Reporter) -> None:
        self._world = world
        self._writer = writer
        self._reporter = reporter

    async def carry_out(
        self,
        course: Course,
        snapshot: Snapshot,
        decision: TuningDecision,
        memory: Memory,
    ) -> Carried:
        """Plan, and write what is missing. Idempotent; at rest it writes nothing."""
        objects, now_s, sd = snapshot.objects, snapshot.now_s, course.sd
        live = live_depth(sd.spec)
        name, bundle = sd.metadata.name, self._world.bundle
        as_they_are = course.weights.stage is FetchStage.PODS_AS_THEY_ARE
        rendering = Rendering(
            version=self._world.version,
            plugin=names.plugin_config_map(name, bundle.content) if live else "",
            depth=names.depth_config_map(name) if live else "",
            weights=None if as_they_are else fetched_by(sd),
        )
        plan = plan_of(
            objects,
            sd.spec,
            course.revision,
            rendering,
            most_new=course.most_new,
            held=(course.weights.holds_pods or course.hold is not None or bool(objects.foreign)),
            frozen=course.hold is not None and course.hold.frozen,
        )
        document = decision.document if live_depth(course.tuned_spec) else None
        refresh = refresh_of(course, snapshot, decision, plan, checking=bool(course.held))
        kept = replace(course.kept, refreshes=refresh.log)
        tuning_data = _tuning_data(kept, objects, decision, memory, now_s)
        desired = Desired(sd, bundle, live, document, tuning_data)
        wanted = (
            *operations(objects, plan, desired),
            *fetch_operations(
                objects, sd, course.weights, self._world.program, held=course.hold is not None
            ),
        )
        todo = tuple(each for each in wanted if (each.kind, each.name) not in objects.foreign)
        absent = _absent(sd, plan, rendering)
        taken = _taken((*((each.kind, each.name) for each in wanted), *absent), objects)
        await self._reporter.tell(course.happenings, objects)
        outcome = await self._writer.carry_out(todo, memory.guard, now_s)
        left = (*outcome.left, *(each for each in wanted if each not in todo))
        missing = (each for each in absent if each not in objects.live)
        memory.unlisted = frozenset({*(each.key for each in taken), *missing, *_unseen(outcome)})
        if outcome.tried or any(each.left_behind for each in taken):
            memory.objects = None
        if _holds(todo, names.tuning_config_map(name)):
            memory.tuning_written_at_s = now_s
        if refresh.pod is not None and not _holds(left, names.tuning_config_map(name)):
            # Only once its record is written: a second one must not follow by mistake.
            await self._refresh(refresh.pod, refresh.why, objects, memory)
        decided = not _holds(left, names.depth_config_map(name))
        if not decided:
            document = objects.depth
        elif document is not None:
            await self._tell_engines(objects, document, decision, memory, now_s)
        return Carried(
            plan,
            outcome.refusals,
            document,
            decided,
            refresh,
            kept,
            taken=taken,
            outdated=outcome.outdated is not None,
            broken_off=outcome.broken_off,
            retry_after_s=memory.guard.retry_after_s(now_s),
        )

    async def keep(self, objects: Objects, memory: Memory, now_s: float) -> None:
        """Write what should survive a restart, of a pass that has no spec to carry out."""
        newest = parse(objects.resource)
        if not isinstance(newest, SpeculativeDeployment) or _written(memory.kept, objects):
            return
        data = {STATE_KEY: memory.state.to_json(), **memory.kept.data()}
        write = brought_about(objects, CONFIG_MAP, tuning_config_map(newest, data))
        if write is not None and (write.kind, write.name) not in objects.foreign:
            await self._writer.carry_out([write], memory.guard, now_s)
            memory.objects = None
            memory.tuning_written_at_s = now_s

    async def _refresh(self, pod: str, why: str, objects: Objects, memory: Memory) -> None:
        if await self._writer.attempt(deleted(objects, POD, pod, why)):
            memory.objects = None
            happening = Happening(Severity.NORMAL, "Refreshing", why)
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
        for nudge in nudges:
            # Best effort: kubelets refresh by themselves in the end.
            await self._writer.attempt(nudge)


def _absent(
    sd: SpeculativeDeployment, plan: Plan, rendering: Rendering
) -> tuple[tuple[Kind, str], ...]:
    """What the wanted revision needs once its pods may be created.

    Looked at by name before that: nothing shall make room for them in vain.
    """
    workload = (workload_kind(sd.spec), names.revision_child(sd.metadata.name, plan.revision))
    return (workload, (CONFIG_MAP, rendering.plugin)) if rendering.plugin else (workload,)


def _unseen(outcome: Outcome) -> Iterator[tuple[Kind, str]]:
    """What may be there although the look did not show it: one creation was refused for that."""
    if isinstance(outcome.outdated, Create):
        yield from ((each.kind, each.name) for each in outcome.left if isinstance(each, Create))


def _taken(needed: Sequence[tuple[Kind, str]], objects: Objects) -> tuple[Taken, ...]:
    return tuple(
        Taken(*key, left_behind(found, objects.metadata))
        for key, found in objects.foreign.items()
        if key in needed
    )


def _holds(operations: Sequence[Operation], config_map: str) -> bool:
    return any(each.kind == CONFIG_MAP and each.name == config_map for each in operations)


def _tuning_data(
    kept: Kept, objects: Objects, decision: TuningDecision, memory: Memory, now_s: float
) -> dict[str, str] | None:
    """What should survive a restart; None: what is written will do for now."""
    data = {STATE_KEY: decision.state.to_json(), **kept.data()}
    if data == {key: text for key, text in objects.tuning.items() if key in KEYS | {STATE_KEY}}:
        return None
    moved = decision.notable and decision.action in {Action.MOVE, Action.PIN, Action.RETURN}
    due = is_over(memory.tuning_written_at_s, QUIET_S, now_s)
    return data if due or moved or not _written(kept, objects) else None


def _written(kept: Kept, objects: Objects) -> bool:
    """Whether the ConfigMap tells of the same step."""
    written = Kept.of(objects.tuning)
    return not written.lost and kept.same_step(written)
