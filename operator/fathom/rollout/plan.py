"""What should become of each revision's workload and of the ConfigMaps that pods mount.

This decides; it renders nothing, so that it knows neither vLLM's flags nor a pod's shape. Turning
its steps into objects, and comparing those with what is live, is `runtime.operations`.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import islice
from typing import Final

from fathom.api import names
from fathom.cluster.kinds import DEPLOYMENT, LEADER_WORKER_SET, Kind
from fathom.cluster.observed import ObservedWorkload
from fathom.cluster.snapshot import Objects
from fathom.resource import SpeculativeDeployment
from fathom.rollout.fleets import RevisionFleet, used_names
from fathom.rollout.progress import Progress, bounds_of, found_fleets, progress_of
from fathom.rollout.replicas import Fleet, ReplicaBounds, replicas_by_revision

_MOUNTED: Final = frozenset({"plugin", "depth"})
"""Components whose ConfigMaps pods mount: they stay as long as a pod does."""


class Template(StrEnum):
    """What happens to a workload's pod templates."""

    RENDER = "Render"
    """It is what this Fathom renders: applied if missing, repaired if it drifted."""
    KEEP = "Keep"
    """It stays as it is, whatever this Fathom would render: an old revision, or pods that another
    build rendered otherwise. Touching it would restart them."""
    COPY = "Copy"
    """A further set of a revision that has some: as those are, whoever rendered them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadStep:
    kind: Kind
    """Deployment, or LeaderWorkerSet where a replica spans several nodes."""
    name: str
    revision: str
    replicas: int
    template: Template
    copied: str = ""
    """The workload that a copy is made of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    revision: str
    """The wanted one."""
    workloads: tuple[WorkloadStep, ...]
    emptied: tuple[tuple[Kind, str], ...]
    """Workloads that have done their service: to be deleted."""
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
    sd: SpeculativeDeployment,
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
        sd: whose spec is carried out.
        revision: its revision.
        rendering: what identifies pods of this Fathom.
        stable: the revision that a rollout would go back to; empty: there is none.
        most_new: replicas that the revision may have for now, while it is on trial; None: all.
        no_room: whether no node has room for a replica beside all others.
        held: whether the revision's pods may not be created yet.
        frozen: whether nothing moves between revisions, as while `rollout.paused` is set.
    """
    found = found_fleets(objects, revision, stable, no_room=no_room)
    fleets = [each.fleet for each in found.values()]
    new = found[revision].fleet if revision in found else None
    bounds = bounds_of(sd.spec, most_new, no_room=no_room, frozen=frozen)
    not_yet = held or (bool(fleets) and (bounds.paused or most_new == 0 or not sd.spec.replicas))
    if held and (new is None or not new.held):
        # Others must not make room for what cannot come.
        bounds = replace(bounds, most_new=0)
    replicas = replicas_by_revision(revision, fleets, bounds)
    if new is None and not not_yet:
        # What serves makes room once its workload is there: one that is refused costs nobody.
        without = replicas_by_revision(revision, fleets, replace(bounds, most_new=0))
        for fleet in fleets:
            least = min(fleet.asked, without[fleet.revision])
            replicas[fleet.revision] = max(replicas[fleet.revision], least)
    outlived = _outlived(new, fleets, bounds)
    steps: list[WorkloadStep] = []
    for each, count in sorted(replicas.items()):
        if each in found and each not in outlived:
            steps += _steps(objects, found[each], count, rendering, wanted=each == revision)
        elif each not in found and not not_yet:
            used = used_names(objects)
            steps += first_steps(sd, each, count, used=used)
    kept = {step.name for step in steps}
    emptied = [each for each in objects.workloads if each.name not in kept]
    return Plan(
        revision=revision,
        workloads=tuple(steps),
        emptied=tuple((each.kind, each.name) for each in emptied),
        unused_config_maps=_unused_config_maps(objects, steps, emptied, rendering),
        progress=progress_of(
            revision, found, bounds, "rollout.paused" if sd.spec.rollout.paused else "a pause"
        ),
        mounts_plugin=_mounts_plugin(objects, steps, rendering),
    )


def first_workload(objects: Objects, sd: SpeculativeDeployment, revision: str) -> tuple[Kind, str]:
    """The first workload that a revision has, or will have."""
    found = (each for each in objects.workloads if each.revision == revision)
    if (workload := next(found, None)) is not None:
        return workload.kind, workload.name
    (step,) = first_steps(sd, revision, 1, used=used_names(objects))
    return step.kind, step.name


def first_steps(
    sd: SpeculativeDeployment, revision: str, replicas: int, *, used: Collection[str] = ()
) -> Sequence[WorkloadStep]:
    """The workloads of a revision that has none: at least one, as its pods may be refused.

    Args:
        sd: whose spec is carried out.
        revision: its revision.
        replicas: to begin with.
        used: names that no workload can have.
    """
    kind, resource = workload_kind(sd), sd.metadata.name
    if kind == DEPLOYMENT:
        name = names.revision_child(resource, revision)
        return [
            WorkloadStep(
                kind=kind, name=name, revision=revision, replicas=replicas, template=Template.RENDER
            )
        ]
    return [
        WorkloadStep(
            kind=kind,
            name=name,
            revision=revision,
            replicas=min(1, replicas),
            template=Template.RENDER,
        )
        for name in _set_names(resource, revision, max(1, replicas), used)
    ]


def _set_names(resource: str, revision: str, count: int, used: Collection[str]) -> Iterator[str]:
    """Names for so many LeaderWorkerSets, or for as many as can have one."""
    found = (names.group_set(resource, revision, each) for each in range(names.MOST_GROUP_SETS))
    return islice((name for name in found if name not in used), count)


def _steps(
    objects: Objects,
    fleet: RevisionFleet,
    replicas: int,
    rendering: Rendering,
    *,
    wanted: bool,
) -> Iterator[WorkloadStep]:
    """What becomes of the workloads that a revision has, but for sets that nobody needs."""
    revision = fleet.fleet.revision
    asked, lacking = fleet.shared(replicas)
    needed = [each for each in fleet.workloads if asked[each.name] or each.name not in fleet.empty]
    # Even with pods of a dead node a set is not empty: no pod of a budget may lack its controller,
    # or Kubernetes lets nobody be evicted. The last one stays, to say what the revision's pods are.
    kept = needed or fleet.workloads[:1]
    for each in kept:
        template = Template.RENDER if wanted and _ours(each, rendering) else Template.KEEP
        yield WorkloadStep(
            kind=each.kind,
            name=each.name,
            revision=revision,
            replicas=asked[each.name],
            template=template,
        )
    if lacking:
        for name in _set_names(objects.key.name, revision, lacking, used_names(objects)):
            copy = WorkloadStep(
                kind=LEADER_WORKER_SET,
                name=name,
                revision=revision,
                replicas=1,
                template=Template.COPY,
            )
            yield replace(copy, copied=kept[0].name)


def workload_kind(sd: SpeculativeDeployment) -> Kind:
    """What holds the pods that a spec asks for."""
    return LEADER_WORKER_SET if sd.engine.layout.spans_nodes else DEPLOYMENT


def _ours(workload: ObservedWorkload, rendering: Rendering) -> bool:
    """Whether this Fathom would render the very same pods: an apply of those restarts none."""
    return bool(rendering.pods) and workload.rendering == rendering.pods


def _mounts_plugin(objects: Objects, steps: Sequence[WorkloadStep], rendering: Rendering) -> bool:
    """Pods that another build rendered may mount this very plugin."""
    if not rendering.plugin:
        return False
    plugins = {each.name: each.plugin for each in objects.workloads}
    return any(
        step.template is Template.RENDER or plugins[step.copied or step.name] == rendering.plugin
        for step in steps
    )


def _outlived(new: Fleet | None, fleets: Sequence[Fleet], bounds: ReplicaBounds) -> Collection[str]:
    """Revisions that have done their service."""
    if bounds.most_new is not None:
        # At no replicas, or at one, a canary is all that is asked for, and proves nothing yet.
        return ()
    if new is None or new.serving < bounds.replicas or new.asked < bounds.replicas:
        return ()
    return [fleet.revision for fleet in fleets if fleet is not new and fleet.held == 0]


def _unused_config_maps(
    objects: Objects,
    steps: Sequence[WorkloadStep],
    emptied: Collection[ObservedWorkload],
    rendering: Rendering,
) -> tuple[str, ...]:
    used = {rendering.depth}
    if any(step.template is Template.RENDER for step in steps):
        used.add(rendering.plugin)
    for pod in objects.pods:
        used |= pod.spec.config_maps
    for workload in objects.workloads:
        if workload not in emptied:
            used |= workload.config_maps | {workload.plugin}
    return tuple(
        sorted(
            each.name
            for each in objects.config_maps
            if each.component in _MOUNTED and each.name not in used
        )
    )
