"""From a plan to the writes that are missing. At rest there are none.

Renders what should exist and compares it with what is live. No I/O; what was found to be as
rendered is remembered for the next pass.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, cast

from pydantic import JsonValue

from fathom.api import names
from fathom.cluster.diff import first_difference, selector_patch
from fathom.cluster.kinds import (
    COMPUTE_DOMAIN,
    CONFIG_MAP,
    OPTIONAL_KINDS,
    POD,
    Kind,
    kind_of,
    wanted_optional,
)
from fathom.cluster.manifest import Manifest, Seen
from fathom.cluster.observed_pods import ObservedPod
from fathom.cluster.snapshot import Objects, TunedObjects
from fathom.engine.depth import DepthDocument
from fathom.engine.plugin import PluginBundle
from fathom.manifests.config_maps import depth_config_map, plugin_config_map, tuning_config_map
from fathom.manifests.render import optional_children
from fathom.manifests.services import service, service_account
from fathom.manifests.workloads import compute_domain, workload
from fathom.reconcile.renderings import AsRendered
from fathom.resource import SpeculativeDeployment
from fathom.rollout.plan import Plan, Template, WorkloadStep


@dataclass(frozen=True, slots=True)
class Create:
    """An object that is not there. One of its name that is somebody else's stays what it is."""

    kind: Kind
    manifest: Manifest
    why: str

    @property
    def name(self) -> str:
        return _name(self.manifest)


@dataclass(frozen=True, slots=True, kw_only=True)
class Apply:
    """Server-side apply of a whole object of ours."""

    kind: Kind
    manifest: Manifest
    seen: Seen
    why: str
    """The first discrepancy, in words."""
    live: Manifest = field(default_factory=dict, repr=False)
    """The object as it was read."""

    @property
    def name(self) -> str:
        return _name(self.manifest)


@dataclass(frozen=True, slots=True, kw_only=True)
class Patch:
    """A merge patch of a few fields, where the rest must not be touched."""

    kind: Kind
    name: str
    patch: Mapping[str, JsonValue]
    seen: Seen
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Delete:
    kind: Kind
    name: str
    seen: Seen
    why: str


Operation = Create | Apply | Patch | Delete

_COPIED: Final = ("namespace", "labels", "annotations", "ownerReferences")
"""Metadata of a workload that a copy has, too; the API server gives it the rest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Children:
    """What is to exist beside the workloads."""

    sd: SpeculativeDeployment
    bundle: PluginBundle
    document: DepthDocument | None
    """None: the engine's depth is not live."""
    tuning_data: Mapping[str, str] | None
    """What the tuning ConfigMap should hold now; None: nothing to write now."""


def operations(
    objects: Objects, plan: Plan, children: Children, as_rendered: AsRendered
) -> tuple[Operation, ...]:
    """The writes that bring the cluster to the plan, in an order that is safe to cut off.

    What a pod mounts comes before the pod, and nothing is deleted before its heir is there.

    Args:
        objects: what the cluster holds.
        plan: of the workloads.
        children: what is to exist beside them.
        as_rendered: workloads that were found to lack nothing; it remembers.
    """
    return (
        *_applies(objects, plan, children),
        *_workloads(objects, plan, children, as_rendered),
        *_unwanted(objects, children.sd),
        *(deleted(objects, *key, "its revision serves no more") for key in plan.emptied),
        *(
            deleted(objects, CONFIG_MAP, name, "no pod mounts it")
            for name in plan.unused_config_maps
        ),
    )


def _applies(objects: Objects, plan: Plan, children: Children) -> Iterator[Operation]:
    for manifest in _supporting(objects, plan, children):
        kind = kind_of(manifest["apiVersion"], manifest["kind"])
        if (operation := brought_about(objects, kind, manifest)) is not None:
            yield operation


def _supporting(objects: Objects, plan: Plan, children: Children) -> Iterator[Manifest]:
    sd = children.sd
    yield service_account(sd)
    if plan.mounts_plugin:
        yield plugin_config_map(sd, children.bundle)
    if children.document is not None:
        yield depth_config_map(sd, children.document)
    if children.tuning_data is not None:
        yield tuning_config_map(sd, children.tuning_data)
    yield service(sd)
    yield from optional_children(sd, objects.optional, objects.served)
    if sd.engine.layout.needs_compute_domain:
        yield compute_domain(sd, _grouped(objects))


def _unwanted(objects: Objects, sd: SpeculativeDeployment) -> Iterator[Operation]:
    """Optional children that the spec asked for before."""
    for kind in sorted(set(OPTIONAL_KINDS) & objects.optional - wanted_optional(sd.spec)):
        if (kind, sd.metadata.name) in objects.live:
            why = "the spec does not ask for it any more"
            yield deleted(objects, kind, sd.metadata.name, why)
    domain, needed = (COMPUTE_DOMAIN, sd.metadata.name), sd.engine.layout.needs_compute_domain
    if domain in objects.live and not needed and not _grouped(objects):
        yield deleted(objects, *domain, "no pod holds a claim to it")


def _grouped(objects: Objects) -> list[ObservedPod]:
    """Pods of replicas over several nodes, by name; those that end still use NVLink."""
    found = (pod for pod in objects.engines if pod.group is not None)
    return sorted(found, key=lambda pod: pod.name)


def _workloads(
    objects: Objects, plan: Plan, children: Children, as_rendered: AsRendered
) -> Iterator[Operation]:
    # What shrinks goes first: what grows may need its GPUs. Last comes what is only to be there.
    asked = {each.name: each.replicas for each in objects.workloads}
    steps = sorted(
        plan.workloads,
        key=lambda step: (
            not step.replicas and step.name not in asked,
            step.replicas - asked.get(step.name, 0),
        ),
    )
    for step in steps:
        if (operation := _brought_to(objects, step, children, as_rendered)) is not None:
            yield operation


def _brought_to(
    objects: Objects, step: WorkloadStep, children: Children, as_rendered: AsRendered
) -> Operation | None:
    match step.template:
        case Template.RENDER:
            return _rendered(objects, step, children, as_rendered)
        case Template.KEEP:
            return _scaled(objects, step)
        case Template.COPY:
            return _copied(objects, step)


def _rendered(
    objects: Objects, step: WorkloadStep, children: Children, as_rendered: AsRendered
) -> Operation | None:
    sd, bundle, live = children.sd, children.bundle, objects.live.get((step.kind, step.name))
    if live is not None and as_rendered.holds(step, sd, bundle, live):
        return None
    manifest = workload(
        step.kind,
        sd,
        name=step.name,
        revision=step.revision,
        replicas=step.replicas,
        bundle=bundle,
    )
    operation = brought_about(objects, step.kind, manifest)
    if operation is None:
        if live is not None:
            as_rendered.note(step, sd, bundle, live, among=objects.live)
        return None
    if isinstance(operation, Patch):
        return operation
    return replace(operation, manifest=_stamped(manifest, objects))


def _stamped(manifest: Mapping[str, JsonValue], objects: Objects) -> dict[str, JsonValue]:
    """With the generation that it is written for, which is no reason to write by itself.

    An API server that has fallen behind may answer with an older resource: by this it is found out.
    """
    metadata = cast("Mapping[str, JsonValue]", manifest.get("metadata", {}))
    annotations = cast("Mapping[str, JsonValue]", metadata.get("annotations", {}))
    stamp = {names.ANNOTATION_GENERATION: str(objects.metadata.generation)}
    return {**manifest, "metadata": {**metadata, "annotations": {**annotations, **stamp}}}


def _scaled(objects: Objects, step: WorkloadStep) -> Operation | None:
    """Replicas, and the labels by which it is listed: other writes could restart healthy pods."""
    live = objects.live[step.kind, step.name]
    labels = {names.LABEL_NAME: objects.metadata.name, names.LABEL_MANAGED_BY: names.FIELD_MANAGER}
    patch: dict[str, JsonValue] = {
        "metadata": {"labels": {**labels}},
        "spec": {"replicas": step.replicas},
    }
    why = first_difference(patch, live)
    if why is None:
        return None
    return Patch(
        kind=step.kind, name=step.name, patch=_stamped(patch, objects), seen=Seen.of(live), why=why
    )


def _copied(objects: Objects, step: WorkloadStep) -> Create:
    """As the one that it is a copy of, but for its name and replicas."""
    live = objects.live[step.kind, step.copied]
    metadata = cast("Mapping[str, JsonValue]", live["metadata"])
    spec = cast("Mapping[str, JsonValue]", live["spec"])
    kept = {key: metadata[key] for key in _COPIED if key in metadata}
    manifest: Manifest = {
        "apiVersion": step.kind.api_version,
        "kind": step.kind.kind,
        "metadata": {**kept, "name": step.name},
        "spec": {**spec, "replicas": step.replicas},
    }
    return Create(step.kind, _stamped(manifest, objects), "one more replica is asked for")


def brought_about(
    objects: TunedObjects, kind: Kind, manifest: Manifest
) -> Create | Apply | Patch | None:
    """What is missing for an object to be as rendered; None: nothing is."""
    live = objects.live.get((kind, _name(manifest)))
    if live is None:
        return Create(kind, manifest, "it does not exist")
    why = first_difference(manifest, live)
    if why is None:
        return None
    if patch := selector_patch(manifest, live):
        return Patch(kind=kind, name=_name(manifest), patch=patch, seen=Seen.of(live), why=why)
    return Apply(kind=kind, manifest=manifest, seen=Seen.of(live), why=why, live=live)


def deleted(objects: Objects, kind: Kind, name: str, why: str) -> Delete:
    """The deletion of an object that was read."""
    return Delete(kind=kind, name=name, seen=Seen.of(objects.live[kind, name]), why=why)


def _name(manifest: Manifest) -> str:
    return str(cast("Mapping[str, JsonValue]", manifest["metadata"])["name"])


def _told_generation(pod: ObservedPod) -> str:
    """Generation of the depth document that it was resynced for last."""
    return pod.metadata.annotations.get(names.ANNOTATION_DEPTH_GENERATION, "").partition(".")[0]


def depth_nudges(
    objects: TunedObjects,
    pods: Sequence[ObservedPod],
    before: DepthDocument | None,
    after: DepthDocument,
    *,
    again_at_s: float | None,
) -> tuple[Patch, ...]:
    """What annotates pods, so that their kubelets refresh the depth volume soon.

    Those that were told of this document already come last: time may not suffice for all.

    Args:
        objects: what the cluster holds.
        pods: of them, those that read the document.
        before: the document that was there; None: none, so that no pod waits for a refresh.
        after: the one that was written.
        again_at_s: nudge every pod, at this time, although it was told before; None: only those
            whose depths changed.
    """
    value = told = str(after.generation)
    if again_at_s is not None:
        # The same value twice would be no change, and wake no kubelet.
        value += f".{int(again_at_s)}"
    elif before is None:
        return ()
    patch: dict[str, JsonValue] = {
        "metadata": {"annotations": {names.ANNOTATION_DEPTH_GENERATION: value}}
    }
    told_again = (
        pod
        for pod in pods
        if not pod.terminating
        and (
            again_at_s is not None
            or before is None
            or before.for_pod(pod.name) != after.for_pod(pod.name)
        )
    )
    return tuple(
        Patch(
            kind=POD,
            name=pod.name,
            patch=patch,
            seen=Seen.of(objects.live[POD, pod.name]),
            why="its depth has changed",
        )
        for pod in sorted(told_again, key=lambda pod: _told_generation(pod) == told)
    )
