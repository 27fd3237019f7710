"""Reads everything one pass decides on."""

import asyncio
from collections.abc import Awaitable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Final, Self, TypeVar, cast

from pydantic import BaseModel

from fathom.adapters.ports import KubeError, KubePort, MetricsPort, PodEndpoint, Sample
from fathom.api import names
from fathom.api.status import SpeculativeDeploymentStatus
from fathom.cluster.kinds import (
    CHILD_KINDS,
    CONFIG_MAP,
    DEPLOYMENT,
    JOB,
    LEADER_WORKER_SET,
    NODE,
    OPTIONAL_KINDS,
    POD,
    SPANNING_KINDS,
    SPECULATIVE_DEPLOYMENT,
    Kind,
    ObjectKey,
)
from fathom.cluster.manifest import Manifest, Meta, place_of
from fathom.cluster.missing_pods import (
    CREATION_FAILED,
    PodGap,
    gaps_in,
    gaps_of,
    lacks_place,
    refusal,
)
from fathom.cluster.observed import (
    ObservedConfigMap,
    ObservedDeployment,
    ObservedEvent,
    ObservedJob,
    ObservedLeaderWorkerSet,
    ObservedNode,
)
from fathom.cluster.observed_pods import ObservedPod
from fathom.cluster.ownership import ours, workload_of
from fathom.cluster.snapshot import Objects, status_in
from fathom.engine.depth import DepthDocument
from fathom.resource import known_part
from fathom.runtime.caches import Named, ReadOnce
from fathom.runtime.ports import World
from fathom_vllm.environment import DEPTH_KEY

_Observed = TypeVar("_Observed", bound=BaseModel)
_MODELS: Final[Mapping[Kind, Any]] = {
    CONFIG_MAP: ObservedConfigMap,
    DEPLOYMENT: ObservedDeployment,
    JOB: ObservedJob,
    LEADER_WORKER_SET: ObservedLeaderWorkerSet,
    POD: ObservedPod,
}
"""What is read of them besides their metadata."""


class Doubt(Enum):
    """What watches have told, and is read anyway."""

    NOTHING = frozenset[Kind]()
    PODS = frozenset({DEPLOYMENT, LEADER_WORKER_SET, POD})
    """Pods and what makes them: on their state rests what is decided of them. Of all else a write
    of something older is refused, and so is making what is there; and each list that is not made is
    less for an API server, which goes through all objects of that kind in the namespace."""
    ALL = None

    def covers(self, kind: Kind) -> bool:
        return self.value is None or kind in self.value


@dataclass(frozen=True, slots=True, kw_only=True)
class _Resource:
    """The SpeculativeDeployment itself."""

    manifest: Manifest
    unknown: tuple[str, ...]
    metadata: Meta
    status: SpeculativeDeploymentStatus | None

    @classmethod
    def read(cls, found: Manifest, before: Objects | None) -> Self:
        """As the API server gave it; what is as it was before has been read already."""
        if before is not None and not before.unknown and before.resource == found:
            return cls(
                manifest=before.resource, unknown=(), metadata=before.metadata, status=before.status
            )
        part = known_part(found)
        metadata = Meta.model_validate(part.known["metadata"])
        return cls(
            manifest=part.known,
            unknown=part.unknown,
            metadata=metadata,
            status=status_in(part.known, SpeculativeDeploymentStatus),
        )


async def read_objects(
    world: World,
    key: ObjectKey,
    *,
    also: Collection[tuple[Kind, str]] = (),
    doubt: Doubt = Doubt.ALL,
    read_once: ReadOnce | None = None,
    before: Objects | None = None,
) -> Objects | None:
    """Read a SpeculativeDeployment and its children; None: it is gone.

    Objects that bear its label and are not its own are as good as not there.

    Args:
        world: of the API server, and of what watches have told.
        key: whose.
        also: objects to be looked at by their names, whatever watches have told: they may lack the
            label, or must not be older than they are.
        doubt: which children may not be as watches have told. Those of a kind of which nothing is
            known now are read, too.
        read_once: what the last look at this resource has read.
        before: the last look at this resource, for what has not changed since; None: not known.

    Raises:
        KubeError: one of the reads failed. Half a picture is none.
    """
    known = read_once or ReadOnce()
    with known.look():
        return await _look(world, key, also, known, before, doubt=doubt)


async def _look(
    world: World,
    key: ObjectKey,
    also: Collection[tuple[Kind, str]],
    known: ReadOnce,
    before: Objects | None,
    *,
    doubt: Doubt,
) -> Objects | None:
    kube, now_s = world.kube, world.clock.now_s()
    served = await world.served()
    resource = await kube.get(SPECULATIVE_DEPLOYMENT, key.namespace, key.name)
    if resource is None:
        return None
    # Nobody here asks who has written which field.
    cast("Manifest", resource["metadata"]).pop("managedFields", None)
    read = _Resource.read(resource, before)
    optional = [kind for kind in (*OPTIONAL_KINDS, *SPANNING_KINDS) if served.has(kind)]
    kinds = (*CHILD_KINDS, *optional)
    told = _told(world, [kind for kind in kinds if not doubt.covers(kind)], key)
    shown = await _shown(world, [kind for kind in kinds if kind not in told], key)
    metadata = read.metadata
    listed = {**told, **shown}
    by_name = {each for each in also if each[0] in listed} | _without_label(known, key.name, listed)
    named = await _named(kube, key.namespace, sorted(by_name))
    children = {
        kind: tuple(_ours(known, kind, (*named.get(kind, ()), *each), metadata))
        for kind, each in listed.items()
    }
    config_maps = observed(known, ObservedConfigMap, children[CONFIG_MAP])
    pods = observed(known, ObservedPod, children[POD])
    groups = observed(known, ObservedLeaderWorkerSet, children.get(LEADER_WORKER_SET, ()))
    jobs = observed(known, ObservedJob, children[JOB])
    depth = _by_that_name(config_maps, names.depth_config_map(key.name))
    tuning = _by_that_name(config_maps, names.tuning_config_map(key.name))
    objects = Objects(
        read_at_s=now_s,
        resource=read.manifest,
        unknown=read.unknown,
        metadata=metadata,
        status=read.status,
        workloads=(
            *observed(known, ObservedDeployment, children[DEPLOYMENT]),
            *groups,
        ),
        pods=pods,
        config_maps=config_maps,
        depth=DepthDocument.from_json(depth.data.get(DEPTH_KEY, "")) if depth else None,
        tuning=tuning.data if tuning else {},
        live=dict(_by_name(known, children.items())),
        foreign=dict(_foreign(named, metadata)),
        optional=frozenset(children.keys() & set(optional)),
        served=served,
        jobs=jobs,
        refused_pods=await _refused_pods(kube, key.namespace, groups, jobs, pods),
        nodes=await world.nodes() if any(pod.unscheduled is not None for pod in pods) else (),
        from_watches=any(map(Doubt.PODS.covers, told)),
    )
    if lacks_place(objects) is None:
        return objects
    return replace(objects, bench=await kube.named(JOB, key.namespace, names.bench(key.name)))


def _without_label(
    known: ReadOnce, name: str, listed: Mapping[Kind, Sequence[Manifest]]
) -> set[tuple[Kind, str]]:
    """Workloads that pods are of, and that are not listed: gone, or a user took our label off."""
    kinds = {DEPLOYMENT, LEADER_WORKER_SET} & listed.keys()
    there = {(kind, place_of(each)[1]) for kind in kinds for each in listed[kind]}
    wanted = {workload_of(_metadata(known, POD, each), name) for each in listed[POD]}
    return {each for each in wanted if each is not None and each[0] in kinds} - there


async def read_metrics(metrics: MetricsPort, pods: Sequence[ObservedPod], *, port: int) -> Sample:
    """Read the counters of those pods that are ready, each on this port."""
    endpoints = [
        PodEndpoint(
            namespace=pod.metadata.namespace,
            pod=pod.name,
            ip=pod.status.pod_ip,
            port=port,
            uid=pod.metadata.uid,
        )
        for pod in pods
        if pod.ready and pod.status.pod_ip
    ]
    return await metrics.sample(endpoints) if endpoints else Sample(())


def _told(world: World, kinds: Iterable[Kind], key: ObjectKey) -> Mapping[Kind, Sequence[Manifest]]:
    found = {kind: world.children.of(kind, key) for kind in kinds}
    return {kind: children for kind, children in found.items() if children is not None}


async def _shown(
    world: World, kinds: Sequence[Kind], key: ObjectKey
) -> Mapping[Kind, Sequence[Manifest]]:
    """Objects that the API server lists; none of an optional kind that the operator may not see."""
    selector = f"{names.LABEL_NAME}={key.name}"

    async def select(kind: Kind) -> Sequence[Manifest] | None:
        found = world.kube.select(kind, key.namespace, selector)
        return await found if kind in CHILD_KINDS else await _if_allowed(found)

    lists = await asyncio.gather(*(select(kind) for kind in kinds))
    shown = {kind: each for kind, each in zip(kinds, lists, strict=True) if each is not None}
    for kind, children in shown.items():
        for child in children:
            world.children.note(kind, child)
    return shown


async def read_nodes(kube: KubePort) -> tuple[ObservedNode, ...]:
    """The cluster's; none where the operator may not see them, as with chosen namespaces only.

    Raises:
        KubeError: they could not be read.
    """
    return observed(ReadOnce(), ObservedNode, await _if_allowed(kube.select(NODE, "", "")) or ())


async def _refused_pods(
    kube: KubePort,
    namespace: str,
    groups: Iterable[ObservedLeaderWorkerSet],
    jobs: Iterable[ObservedJob],
    pods: Sequence[ObservedPod],
) -> dict[str, str]:
    """Nothing is read while no pod is missing."""
    gaps = [(name, gap) for name, found in gaps_in(groups, pods).items() for gap in found]
    gaps += [(job.name, gap) for job in jobs for gap in gaps_of(job, pods)]
    found: dict[str, str] = {}
    for name, gap in gaps:
        if why := refusal(gap, await _told_of(kube, namespace, gap)):
            found.setdefault(name, why)
    return found


async def _told_of(kube: KubePort, namespace: str, gap: PodGap) -> tuple[ObservedEvent, ...]:
    """Advice, without which the picture is whole; none where events cannot be read."""
    try:
        said = await kube.events(namespace, gap.owner, CREATION_FAILED)
    except KubeError:
        return ()
    return observed(ReadOnce(), ObservedEvent, said)


async def _if_allowed(read: Awaitable[Sequence[Manifest]]) -> Sequence[Manifest] | None:
    """None: the operator may not, as with rights that are older than this use."""
    try:
        return await read
    except KubeError as error:
        if error.forbidden:
            return None
        raise


def observed(
    known: ReadOnce, model: type[_Observed], found: Iterable[Manifest]
) -> tuple[_Observed, ...]:
    """What can be read; an object that a person mangled must not stop everything else."""
    models = (known.model(model, manifest) for manifest in found)
    return tuple(each for each in models if each is not None)


def _by_name(
    known: ReadOnce, children: Iterable[tuple[Kind, Sequence[Manifest]]]
) -> Iterable[tuple[tuple[Kind, str], Manifest]]:
    for kind, found in children:
        for manifest in found:
            yield (kind, _metadata(known, kind, manifest).name), manifest


def _metadata(known: ReadOnce, kind: Kind, manifest: Manifest) -> Meta:
    named: Named | ObservedPod | None = known.model(_MODELS.get(kind, Named), manifest)
    return Meta.model_validate(manifest["metadata"]) if named is None else named.metadata


def _by_that_name(config_maps: Iterable[ObservedConfigMap], name: str) -> ObservedConfigMap | None:
    return next((each for each in config_maps if each.name == name), None)


async def _named(
    kube: KubePort, namespace: str, keys: Sequence[tuple[Kind, str]]
) -> Mapping[Kind, Sequence[Manifest]]:
    found = await asyncio.gather(*(kube.named(kind, namespace, name) for kind, name in keys))
    named: dict[Kind, list[Manifest]] = {}
    for (kind, _), manifest in zip(keys, found, strict=True):
        if manifest is not None:
            named.setdefault(kind, []).append(manifest)
    return named


def _ours(
    known: ReadOnce, kind: Kind, found: Iterable[Manifest], resource: Meta
) -> Iterable[Manifest]:
    """Those that are the resource's own, each once."""
    seen = set()
    for manifest in found:
        metadata = _metadata(known, kind, manifest)
        if metadata.name not in seen and ours(kind, metadata, resource):
            seen.add(metadata.name)
            yield manifest


def _foreign(
    named: Mapping[Kind, Sequence[Manifest]], resource: Meta
) -> Iterable[tuple[tuple[Kind, str], Meta]]:
    for kind, found in named.items():
        for manifest in found:
            metadata = Meta.model_validate(manifest["metadata"])
            if not ours(kind, metadata, resource):
                yield (kind, metadata.name), metadata
