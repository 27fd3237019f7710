"""What one pass is to write, and what came of it."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from fathom.api import names
from fathom.core.cluster.kinds import CONFIG_MAP, Kind
from fathom.core.cluster.ownership import Taken, left_behind
from fathom.core.cluster.snapshot import Objects, Snapshot
from fathom.core.plan import Plan, Rendering, first_workload, plan_of
from fathom.core.plugin import PluginBundle
from fathom.core.times import is_over
from fathom.engine.depth import DepthDocument
from fathom.fetch.program import FetchProgram
from fathom.fetch.standing import FetchStage
from fathom.reconcile.checkpoint import KEYS, LOOK_KEY, Checkpoint
from fathom.reconcile.desired_state import DesiredState
from fathom.reconcile.kept_state import STATE_KEYS, state_data
from fathom.reconcile.memory import Memory
from fathom.reconcile.refresh_input import refresh_of
from fathom.reconcile.said import QUIET_S
from fathom.reconcile.writing.apply_guard import ApplyGuard
from fathom.reconcile.writing.bench_operations import bench_ended
from fathom.reconcile.writing.fetch_operations import fetch_operations
from fathom.reconcile.writing.operations import Children, Create, Delete, Operation, operations
from fathom.resource import SpeculativeDeployment
from fathom.rollout.refresh import Refresh
from fathom.tuning.interface import Action, TuningDecision


@dataclass(frozen=True, slots=True)
class Writes:
    """One pass's writes, in order, and what they follow from."""

    plan: Plan
    todo: tuple[Operation, ...]
    barred: tuple[Operation, ...]
    """Those whose name something else bears: they are not tried."""
    document: DepthDocument | None
    """The depths to ask for; None: this engine's depth is not live."""
    refresh: Refresh
    """Which replica to restart for its age, or why none."""
    checkpoint: Checkpoint
    """What should survive a restart."""
    taken: tuple[Taken, ...]
    """Names that something else bears."""
    unlisted: frozenset[tuple[Kind, str]]
    """What the next pass has to look at by name."""
    bench_ended: Delete | None
    """The part of `todo` that takes its place from a bench; None: nothing."""

    def need_a_look(self, guard: ApplyGuard, now_s: float) -> bool:
        """Whether what is tried of them is not to be decided on what watches have told.

        Watches may be late, or have missed something. Documents of ours are excepted: depth follows
        traffic without a read, and a write that was decided on an older document is refused.
        """
        tried = (each for each in self.todo if guard.refusal(each, now_s) is None)
        return self.refresh.pod is not None or any(
            isinstance(each, Create | Delete) or each.kind != CONFIG_MAP for each in tried
        )


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
    checkpoint: Checkpoint
    """What should survive a restart."""
    taken: tuple[Taken, ...] = ()
    """Names that something else bears."""
    goes_on: bool = False
    """Whether something was written from which a next step may follow at once."""
    outdated: bool = False
    """Whether the cluster was found in another state than the one that all this was decided on."""
    broken_off: bool = False
    """Whether a write failed in a way that may pass by itself, so that others were not tried."""
    retry_after_s: float = float("inf")
    """Seconds until a write that was refused for good may be tried again."""


def writes_of(
    desired: DesiredState,
    snapshot: Snapshot,
    decision: TuningDecision,
    memory: Memory,
    *,
    bundle: PluginBundle,
    program: FetchProgram,
) -> Writes:
    """Plan, and render what is missing. At rest there is nothing to write.

    Args:
        desired: what this pass carries out.
        snapshot: this pass's view.
        decision: the tuner's.
        memory: what is remembered of earlier passes; it stays as it is, but for `as_rendered`
            and `renderings`.
        bundle: this Fathom's plugin.
        program: that fetches.
    """
    objects, now_s, sd = snapshot.objects, snapshot.now_s, desired.made_from
    name = sd.metadata.name
    as_they_are = desired.weights.stage is FetchStage.PODS_AS_THEY_ARE
    rendering = Rendering(
        pods="" if as_they_are else memory.renderings.of(sd, bundle),
        plugin=names.plugin_config_map(name, bundle.content) if sd.engine.has_plugin else "",
        depth=names.depth_config_map(name) if sd.engine.live else "",
    )
    plan = plan_of(
        objects,
        sd,
        desired.revision,
        rendering,
        stable=desired.rollout.stable if desired.rollout is not None else "",
        most_new=desired.most_new,
        no_room=desired.rollout is not None and desired.rollout.no_room,
        held=(desired.weights.holds_pods or desired.hold is not None or bool(objects.foreign)),
        frozen=desired.frozen,
    )
    document = decision.document if desired.read else None
    refresh = refresh_of(desired, snapshot, decision, plan, checking=bool(desired.held))
    checkpoint = replace(desired.checkpoint, refreshes=refresh.log)
    tuning_data = _tuning_data(checkpoint, objects, decision, memory, now_s)
    children = Children(sd, bundle, document, tuning_data)
    ended = bench_ended(objects)
    wanted = (
        *(() if ended is None else (ended,)),
        *operations(objects, plan, children, memory.as_rendered),
        *fetch_operations(objects, sd, desired.weights, program, held=desired.hold is not None),
    )
    todo = tuple(each for each in wanted if (each.kind, each.name) not in objects.foreign)
    absent = _absent(objects, sd, plan, rendering)
    taken = _taken((*((each.kind, each.name) for each in wanted), *absent), objects)
    missing = (each for each in absent if each not in objects.live)
    return Writes(
        plan,
        todo,
        tuple(each for each in wanted if each not in todo),
        document,
        refresh,
        checkpoint,
        taken,
        frozenset({*(each.key for each in taken), *missing}),
        ended,
    )


def _absent(
    objects: Objects, sd: SpeculativeDeployment, plan: Plan, rendering: Rendering
) -> tuple[tuple[Kind, str], ...]:
    """What the wanted revision needs once its pods may be created.

    Looked at by name before that: nothing shall make room for them in vain.
    """
    workload = first_workload(objects, sd, plan.revision)
    return (workload, (CONFIG_MAP, rendering.plugin)) if rendering.plugin else (workload,)


def _taken(needed: Sequence[tuple[Kind, str]], objects: Objects) -> tuple[Taken, ...]:
    return tuple(
        Taken(*key, left_behind(found, objects.metadata))
        for key, found in objects.foreign.items()
        if key in needed
    )


def _tuning_data(
    checkpoint: Checkpoint, objects: Objects, decision: TuningDecision, memory: Memory, now_s: float
) -> dict[str, str] | None:
    """What should survive a restart; None: what is written will do for now."""
    moved = decision.notable and decision.action in {Action.MOVE, Action.PIN, Action.RETURN}
    due = is_over(memory.tuning_written_at_s, QUIET_S, now_s)
    if not (due or moved) and is_written(checkpoint, objects):
        return None
    data = {**state_data(decision.state), **checkpoint.data()}
    ours = (KEYS | STATE_KEYS) - {LOOK_KEY}
    return data if _only(ours, data) != _only(ours, objects.tuning) else None


def _only(keys: Collection[str], data: Mapping[str, str]) -> dict[str, str]:
    return {key: text for key, text in data.items() if key in keys}


def is_written(checkpoint: Checkpoint, objects: Objects) -> bool:
    """Whether the ConfigMap tells of the same step."""
    written = Checkpoint.of(objects.tuning)
    return not written.lost and checkpoint.same_step(written)
