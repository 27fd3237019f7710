"""What should become of each revision's workload and of the ConfigMaps that pods mount.

This decides; it renders nothing, so that it knows neither vLLM's flags nor a pod's shape. Turning
its steps into objects, and comparing those with what is live, is `runtime.operations`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from fathom.api import names
from fathom.api.conditions import Reason
from fathom.api.spec import SpeculativeDeploymentSpec
from fathom.core.cluster.kinds import DEPLOYMENT, LEADER_WORKER_SET, Kind
from fathom.core.cluster.nodes_per_replica import spans_nodes
from fathom.core.cluster.observed import ObservedWorkload
from fathom.core.cluster.replica_pods import ReplicaPods, replicas_in
from fathom.core.cluster.snapshot import Objects
from fathom.core.counted import counted
from fathom.core.replicas import Fleet, ReplicaBounds, replicas_by_revision

_MOUNTED: Final = frozenset({"plugin", "depth"})
"""Components whose ConfigMaps pods mount: they stay as long as a pod does."""


class Template(StrEnum):
    """What happens to a workload's pod templates."""

    RENDER = "Render"
    """It is what this Fathom renders: applied if missing, repaired if it drifted."""
    KEEP = "Keep"
    """It stays as it is, whatever this Fathom would render: an old revision, or pods that another
    build rendered otherwise. Touching it would restart them."""


@dataclass(frozen=True, slots=True)
class WorkloadStep:
    kind: Kind
    """Deployment, or LeaderWorkerSet where a replica spans several nodes."""
    name: str
    revision: str
    replicas: int
    template: Template


_MOVING: Final = frozenset(
    {
        Reason.STARTING,
        Reason.FETCHING_WEIGHTS,
        Reason.WAITING_FOR_HUB,
        Reason.ROLLING_OUT,
        Reason.SCALING,
        Reason.SETTLING,
        Reason.CANARY_STARTING,
        Reason.AWAITING_CAPACITY,
        Reason.CANARY_BAKING,
    }
)


@dataclass(frozen=True, slots=True)
class Progress:
    """Where the rollout is, for the Progressing condition."""

    reason: Reason
    message: str

    @property
    def moving(self) -> bool:
        return self.reason in _MOVING


@dataclass(frozen=True, slots=True)
class Plan:
    revision: str
    """The wanted one."""
    workloads: tuple[WorkloadStep, ...]
    emptied: tuple[tuple[Kind, str], ...]
    """Workloads of other revisions that have done their service: to be deleted."""
    unused_config_maps: tuple[str, ...]
    """Plugin and depth ConfigMaps that nothing mounts: to be deleted."""
    progress: Progress
    mounts_plugin: bool
    """Whether pods of some workload mount the plugin of this Fathom, so that it must exist."""


@dataclass(frozen=True, slots=True)
class Rendering:
    """What identifies pods of this Fathom."""

    pods: str
    """Hash of the pods as it renders them; empty: those that run are not to be rendered."""
    plugin: str
    """Name of the plugin ConfigMap that they mount; empty: none."""
    depth: str
    """Name of the depth ConfigMap that they mount; empty: none."""


def plan_of(
    objects: Objects,
    spec: SpeculativeDeploymentSpec,
    revision: str,
    rendering: Rendering,
    *,
    stable: str = "",
    most_new: int | None = None,
    no_room: bool = False,
    held: bool = False,
    frozen: bool = False,
) -> Plan:
    """Decide from what is there; idempotent, and safe to be cut off after any step.

    Args:
        objects: what the cluster holds.
        spec: the one to carry out.
        revision: its revision.
        rendering: what identifies pods of this Fathom.
        stable: the revision that a rollout would go back to; empty: there is none.
        most_new: replicas that the revision may have for now, while it is on trial; None: all.
        no_room: whether no node has room for a replica beside all others.
        held: whether the revision's pods may not be created yet.
        frozen: whether nothing moves between revisions, as while `rollout.paused` is set.
    """
    rollout, paused = spec.rollout, spec.rollout.paused or frozen
    fleets = fleets_of(objects, stable)
    if no_room:
        fleets = tuple(
            each if each.revision != revision else _placed(each, objects) for each in fleets
        )
    new = next((fleet for fleet in fleets if fleet.revision == revision), None)
    not_yet = held or (bool(fleets) and (paused or most_new == 0 or not spec.replicas))
    if held and (new is None or not new.held):
        # Others must not make room for what cannot come.
        most_new = 0
    bounds = ReplicaBounds(
        spec.replicas,
        rollout.max_unavailable,
        0 if no_room else rollout.max_surge,
        paused,
        most_new,
    )
    replicas = replicas_by_revision(revision, fleets, bounds)
    if new is None and not not_yet:
        # What serves makes room once its workload is there: one that is refused costs nobody.
        without = replicas_by_revision(revision, fleets, replace(bounds, most_new=0))
        for fleet in fleets:
            least = min(fleet.asked, without[fleet.revision])
            replicas[fleet.revision] = max(replicas[fleet.revision], least)
    emptied = _emptied(new, fleets, bounds)
    present = {each.revision: each for each in objects.workloads}
    steps = []
    for each, count in sorted(replicas.items()):
        workload = present.get(each)
        if each in emptied or (workload is None and not_yet):
            continue
        steps.append(
            WorkloadStep(
                kind=workload.kind if workload else workload_kind(spec),
                name=_name(objects, each, workload),
                revision=each,
                replicas=count,
                template=_template(each == revision, workload, rendering),
            )
        )
    return Plan(
        revision=revision,
        workloads=tuple(steps),
        emptied=tuple((present[each].kind, present[each].name) for each in emptied),
        unused_config_maps=_unused_config_maps(objects, steps, emptied, rendering),
        progress=_progress(
            revision, fleets, bounds, "rollout.paused" if rollout.paused else "a pause"
        ),
        mounts_plugin=_mounts_plugin(steps, present, rendering),
    )


def fleets_of(objects: Objects, stable: str = "") -> tuple[Fleet, ...]:
    """What each revision with a workload has. Nobody waits for pods whose node died."""
    found = replicas_in(pod for pod in objects.engines if not pod.lost(objects.read_at_s))
    return tuple(
        _fleet(workload, [each for each in found if each.revision == workload.revision], stable)
        for workload in objects.workloads
    )


def _placed(fleet: Fleet, objects: Objects) -> Fleet:
    """Of a revision without any pod that has a node: it asks for none until others made room."""
    own = (pod for pod in objects.engines if pod.revision == fleet.revision)
    if any(pod.unscheduled is None for pod in own):
        return fleet
    return replace(fleet, asked=0, pods=0)


def _fleet(workload: ObservedWorkload, replicas: Sequence[ReplicaPods], stable: str) -> Fleet:
    ordered = workload.kind == LEADER_WORKER_SET
    return Fleet(
        revision=workload.revision,
        asked=workload.replicas,
        pods=sum(not each.terminating for each in replicas),
        ready=sum(each.ready for each in replicas),
        terminating=sum(each.terminating for each in replicas),
        stable=workload.revision == stable,
        ready_indices=(
            frozenset(each.index for each in replicas if each.ready and each.index is not None)
            if ordered
            else None
        ),
    )


def workload_kind(spec: SpeculativeDeploymentSpec) -> Kind:
    """What holds the pods that a spec asks for."""
    return LEADER_WORKER_SET if spans_nodes(spec) else DEPLOYMENT


def _name(objects: Objects, revision: str, workload: ObservedWorkload | None) -> str:
    return workload.name if workload else names.revision_child(objects.key.name, revision)


def _template(
    wanted: bool,  # noqa: FBT001  # one private caller
    workload: ObservedWorkload | None,
    rendering: Rendering,
) -> Template:
    if workload is None:
        return Template.RENDER
    # An apply of the very same pods restarts none, and repairs what drifted.
    ours = bool(rendering.pods) and workload.rendering == rendering.pods
    return Template.RENDER if wanted and ours else Template.KEEP


def _mounts_plugin(
    steps: Sequence[WorkloadStep], present: Mapping[str, ObservedWorkload], rendering: Rendering
) -> bool:
    """Pods that another build rendered may mount this very plugin."""
    if not rendering.plugin:
        return False
    return any(
        step.template is Template.RENDER or present[step.revision].plugin == rendering.plugin
        for step in steps
    )


def _emptied(new: Fleet | None, fleets: Sequence[Fleet], bounds: ReplicaBounds) -> tuple[str, ...]:
    if bounds.most_new is not None:
        # At no replicas, or at one, a canary is all that is asked for, and proves nothing yet.
        return ()
    if new is None or new.serving < bounds.replicas or new.asked < bounds.replicas:
        return ()
    return tuple(fleet.revision for fleet in fleets if fleet is not new and fleet.held == 0)


def _unused_config_maps(
    objects: Objects,
    steps: Sequence[WorkloadStep],
    emptied: Sequence[str],
    rendering: Rendering,
) -> tuple[str, ...]:
    used = {rendering.depth}
    if any(step.template is Template.RENDER for step in steps):
        used.add(rendering.plugin)
    for pod in objects.pods:
        used |= pod.spec.config_maps
    for workload in objects.workloads:
        if workload.revision not in emptied:
            used |= workload.config_maps | {workload.plugin}
    return tuple(
        sorted(
            each.name
            for each in objects.config_maps
            if each.component in _MOUNTED and each.name not in used
        )
    )


def _progress(
    revision: str, fleets: Sequence[Fleet], bounds: ReplicaBounds, holder: str
) -> Progress:
    new = next((f for f in fleets if f.revision == revision), Fleet(revision, 0, 0, 0, 0))
    others = [fleet for fleet in fleets if fleet is not new and fleet.held > 0]
    ready = f"{new.serving} of {bounds.replicas} replicas"
    if others and bounds.paused:
        serving = ", ".join(f"{fleet.serving} of {fleet.revision}" for fleet in others)
        return Progress(
            Reason.ROLLOUT_PAUSED,
            f"{holder} holds the rollout to revision {revision}: {new.serving} of it and "
            f"{serving} are ready.",
        )
    if others:
        left = sum(fleet.held for fleet in others)
        return Progress(
            Reason.ROLLING_OUT,
            f"{ready} of revision {revision} are ready; {left} of other revisions are left.",
        )
    if new.serving < bounds.replicas:
        scaling = new.serving > 0
        return Progress(
            Reason.SCALING if scaling else Reason.STARTING,
            f"{ready} of revision {revision} are ready; "
            + ("more are starting." if scaling else "the engines are starting."),
        )
    if new.pods + new.terminating > bounds.replicas:
        surplus = new.pods + new.terminating - bounds.replicas
        return Progress(
            Reason.SCALING,
            f"{counted(surplus, 'surplus replica is', 'surplus replicas are')} draining.",
        )
    return Progress(Reason.UP_TO_DATE, f"every replica is of revision {revision}.")
