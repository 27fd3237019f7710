"""What one reconcile is to write. Pure.

A bench is made by who asks for it, with rights of their own. No priority tells its pod from a
replica's, so Kubernetes would let it keep its place.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from pydantic import JsonValue

from fathom.api import names
from fathom.api.choices import AutoOrNever
from fathom.api.conditions import AlarmKind
from fathom.cluster.diff import first_difference, selector_patch
from fathom.cluster.kinds import CONFIG_MAP, JOB, SERVICE, Kind
from fathom.cluster.manifest import Seen
from fathom.cluster.missing_pods import lacks_place
from fathom.cluster.observed import ObservedJob
from fathom.cluster.ownership import Taken, left_behind
from fathom.cluster.snapshot import Objects, Snapshot
from fathom.engine.depth import DepthDocument
from fathom.engine.plugin import PluginBundle
from fathom.fetch.state import FetchProgram, FetchStage
from fathom.manifests.intake_job import IntakeProgram
from fathom.manifests.metadata import serving_labels
from fathom.reconcile.checkpoint import KEYS, LOOK_KEY, Checkpoint
from fathom.reconcile.desired_state import DesiredState
from fathom.reconcile.fetching import fetch_operations
from fathom.reconcile.last_status import QUIET_S
from fathom.reconcile.loop_state import STATE_KEYS, LoopState, Memo, state_data
from fathom.reconcile.operations import Children, Create, Delete, Operation, Patch, operations
from fathom.reconcile.training import TrainingStep
from fathom.reconcile.training_jobs import training_operations
from fathom.resource import SpeculativeDeployment
from fathom.rollout.plan import Plan, Rendering, first_workload, plan_of
from fathom.rollout.refresh import Refresh, RefreshInput, next_refresh
from fathom.rollout.rollout import Stage
from fathom.times import is_over
from fathom.tuning.interface import TuningDecision

_BY_SPEC: Final = "rollout.paused holds everything but scaling."
LOADING_S: Final = 3600.0
"""A replica that is restarted is missing for about so long: that time must be quiet as well."""


def refresh_of(
    desired: DesiredState,
    snapshot: Snapshot,
    decision: TuningDecision,
    plan: Plan,
    *,
    checking: bool,
) -> Refresh:
    """Whether to restart a replica now.

    Args:
        desired: what this pass carries out.
        snapshot: this pass's view.
        decision: the tuner's, with its alarms.
        plan: what becomes of the Deployments.
        checking: whether a quality check is under way.
    """
    spec, now_s = desired.sd.spec, snapshot.now_s
    rollout, load = desired.rollout, decision.state.load
    alarms = {each.kind: each for each in decision.alarms}
    decay = alarms.get(AlarmKind.ACCEPTANCE_DECAY)
    rolling = rollout is not None and rollout.stage is not Stage.ROLLED_BACK
    return next_refresh(
        RefreshInput(
            now_s=now_s,
            auto=spec.rollout.refresh is AutoOrNever.AUTO,
            paused=desired.paused or (_BY_SPEC if spec.rollout.paused else ""),
            decay_since_s=decay.since_s if decay else None,
            decay_after_s=decay.older_than_s if decay else None,
            busy=rolling or plan.progress.moving or checking,
            trough=load.is_trough(now_s) and load.is_trough(now_s + LOADING_S),
            replicas=spec.replicas,
            max_unavailable=spec.rollout.max_unavailable,
            pods=snapshot.objects.standing,
            log=desired.checkpoint.refreshes,
        )
    )


def bench_ended(objects: Objects) -> Delete | None:
    """The deletion of a bench's Job that holds, or waits for, what a replica needs."""
    if objects.bench is None or (trouble := lacks_place(objects)) is None:
        return None
    job = ObservedJob.model_validate(objects.bench)
    ends = job.ended or job.metadata.deletion_timestamp is not None
    ours = job.metadata.labels.get(names.LABEL_BENCH) == objects.key.name and any(
        each.uid == objects.metadata.uid for each in job.metadata.owner_references
    )
    if ends or not ours:
        return None
    why = f"a replica goes before a bench: {trouble.message}"
    return Delete(kind=JOB, name=job.name, seen=Seen.of(objects.bench), why=why)


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """What this build of the operator brings into the cluster."""

    bundle: PluginBundle
    """Its plugin."""
    program: FetchProgram
    """That fetches weights."""
    intake: IntakeProgram
    """That takes in drafts which were trained elsewhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Writes:
    """One reconcile's writes, in order, and what they follow from."""

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

    def need_a_read(self, tried: Iterable[Operation]) -> bool:
        """Whether what is tried of them is not to be decided on what watches have told.

        Watches may be late, or have missed something. Documents of ours are excepted: depth follows
        traffic without a read, and a write that was decided on an older document is refused.
        """
        return self.refresh.pod is not None or any(
            isinstance(each, Create | Delete) or each.kind != CONFIG_MAP for each in tried
        )


def writes_of(
    desired: DesiredState,
    snapshot: Snapshot,
    decision: TuningDecision,
    state: LoopState,
    *,
    training: TrainingStep,
    build: Build,
    memo: Memo,
) -> Writes:
    """Plan, and render what is missing. At rest there is nothing to write.

    Args:
        desired: what this pass carries out.
        snapshot: this pass's view.
        decision: the tuner's.
        state: what is remembered of earlier reconciles.
        training: what this pass makes of the training of a draft.
        build: of this operator.
        memo: of what is rendered.
    """
    objects, now_s, sd = snapshot.objects, snapshot.now_s, desired.made_from
    name, bundle = sd.metadata.name, build.bundle
    as_they_are = desired.weights.stage is FetchStage.PODS_AS_THEY_ARE
    rendering = Rendering(
        pods="" if as_they_are else memo.renderings.of(sd, bundle),
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
    checkpoint = replace(desired.checkpoint, refreshes=refresh.log, training=training.record)
    written = is_written(checkpoint, objects)
    if not written:
        checkpoint = checkpoint.without_foreign(objects.tuning, state.checkpoint)
    due = not written or is_over(state.tuning_written_at_s, QUIET_S, now_s) or decision.moved
    tuning_data = _tuning_data(checkpoint, objects, decision) if due else None
    children = Children(sd=sd, bundle=bundle, document=document, tuning_data=tuning_data)
    ended = bench_ended(objects)
    wanted = (
        *(() if ended is None else (ended,)),
        *operations(objects, plan, children, memo.as_rendered),
        *fetch_operations(
            objects, sd, desired.weights, build.program, held=desired.hold is not None
        ),
        *training_operations(objects, desired.fleet, training, desired, build.intake),
    )
    todo = tuple(each for each in wanted if (each.kind, each.name) not in objects.foreign)
    absent = _absent(objects, sd, plan, rendering)
    taken = _taken((*((each.kind, each.name) for each in wanted), *absent), objects)
    missing = (each for each in absent if each not in objects.live)
    return Writes(
        plan=plan,
        todo=todo,
        barred=tuple(each for each in wanted if each not in todo),
        document=document,
        refresh=refresh,
        checkpoint=checkpoint,
        taken=taken,
        unlisted=frozenset({*(each.key for each in taken), *missing}),
        bench_ended=ended,
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
    checkpoint: Checkpoint, objects: Objects, decision: TuningDecision
) -> dict[str, str] | None:
    """What should survive a restart; None: it is written."""
    data = {**state_data(decision.state), **checkpoint.data()}
    ours = (KEYS | STATE_KEYS) - {LOOK_KEY}
    return data if _only(ours, data) != _only(ours, objects.tuning) else None


def _only(keys: Collection[str], data: Mapping[str, str]) -> dict[str, str]:
    return {key: text for key, text in data.items() if key in keys}


def is_written(checkpoint: Checkpoint, objects: Objects) -> bool:
    """Whether the ConfigMap tells of the same step."""
    written = Checkpoint.of(objects.tuning)
    return not written.lost and checkpoint.same_step(written)


def selected_again(objects: Objects) -> Patch | None:
    """What makes the Service select the pods that serve again; None: it does."""
    name = objects.metadata.name
    live = objects.live.get((SERVICE, name))
    ours: dict[str, JsonValue] = {"spec": {"selector": serving_labels(name)}}
    why = live and first_difference(ours, live)
    if live is None or not why or (SERVICE, name) in objects.foreign:
        return None
    patch = selector_patch(ours, live) or ours
    return Patch(kind=SERVICE, name=name, patch=patch, seen=Seen.of(live), why=why)
