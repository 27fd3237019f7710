"""Reads everything one pass decides on."""

import asyncio
from collections.abc import Awaitable, Collection, Iterable, Mapping, Sequence
from typing import Final, TypeVar

from pydantic import BaseModel, ValidationError

from fathom.adapters.ports import KubeError, KubePort, MetricsPort, PodEndpoint, Sample
from fathom.api import names
from fathom.api.resource import known_part
from fathom.core.cluster.group_gaps import CREATION_FAILED, gaps_in, refusal
from fathom.core.cluster.kinds import (
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
from fathom.core.cluster.manifest import Manifest
from fathom.core.cluster.metadata import Meta
from fathom.core.cluster.observed import (
    ObservedConfigMap,
    ObservedDeployment,
    ObservedEvent,
    ObservedJob,
    ObservedLeaderWorkerSet,
    ObservedNode,
)
from fathom.core.cluster.observed_pods import ObservedPod
from fathom.core.cluster.ownership import ours
from fathom.core.cluster.served import ServedApis
from fathom.core.cluster.snapshot import Objects, status_in
from fathom.core.depth import DepthDocument
from fathom.manifests.engine_command.flags import HTTP_PORT
from fathom_vllm.environment import DEPTH_KEY

_Observed = TypeVar("_Observed", bound=BaseModel)
_FORBIDDEN: Final = 403


async def read_objects(
    kube: KubePort,
    key: ObjectKey,
    served: ServedApis,
    now_s: float,
    also: Collection[tuple[Kind, str]] = (),
) -> Objects | None:
    """Read a SpeculativeDeployment and its children; None: it is gone.

    Objects that bear its label and are not its own are as good as not there.

    Args:
        kube: the API server.
        key: whose.
        served: which of the optional kinds there can be.
        now_s: Unix seconds.
        also: objects to be looked at by their names, as they may lack the label.

    Raises:
        KubeError: one of the reads failed. Half a picture is none.
    """
    resource = await kube.get(SPECULATIVE_DEPLOYMENT, key.namespace, key.name)
    if resource is None:
        return None
    read = known_part(resource)
    selector = f"{names.LABEL_NAME}={key.name}"
    optional = [kind for kind in (*OPTIONAL_KINDS, *SPANNING_KINDS) if served.has(kind)]
    lists = await asyncio.gather(
        *(kube.select(kind, key.namespace, selector) for kind in CHILD_KINDS),
        *(_select_if_allowed(kube, kind, key.namespace, selector) for kind in optional),
    )
    metadata = Meta.model_validate(read.known["metadata"])
    found = zip((*CHILD_KINDS, *optional), lists, strict=True)
    listed = {kind: each for kind, each in found if each is not None}
    named = await _named(kube, key.namespace, [each for each in also if each[0] in listed])
    children = {
        kind: tuple(_ours(kind, (*each, *named.get(kind, ())), metadata))
        for kind, each in listed.items()
    }
    config_maps = _observed(ObservedConfigMap, children[CONFIG_MAP])
    pods = _observed(ObservedPod, children[POD])
    groups = _observed(ObservedLeaderWorkerSet, children.get(LEADER_WORKER_SET, ()))
    depth = _by_that_name(config_maps, names.depth_config_map(key.name))
    tuning = _by_that_name(config_maps, names.tuning_config_map(key.name))
    return Objects(
        read_at_s=now_s,
        resource=read.known,
        unknown=read.unknown,
        metadata=metadata,
        status=status_in(read.known),
        workloads=(
            *_observed(ObservedDeployment, children[DEPLOYMENT]),
            *groups,
        ),
        pods=pods,
        config_maps=config_maps,
        depth=DepthDocument.from_json(depth.data.get(DEPTH_KEY, "")) if depth else None,
        tuning=tuning.data if tuning else {},
        live=dict(_by_name(children.items())),
        foreign=dict(_foreign(named, metadata)),
        optional=frozenset(children.keys() & set(optional)),
        served=served,
        jobs=_observed(ObservedJob, children[JOB]),
        refused_pods=await _refused_pods(kube, key.namespace, groups, pods),
        nodes=await _nodes(kube) if any(pod.unscheduled is not None for pod in pods) else (),
    )


async def read_metrics(metrics: MetricsPort, pods: Sequence[ObservedPod]) -> Sample:
    """Look at the counters of those pods that are ready."""
    endpoints = [
        PodEndpoint(pod.metadata.namespace, pod.name, pod.status.pod_ip, HTTP_PORT)
        for pod in pods
        if pod.ready and pod.status.pod_ip
    ]
    return await metrics.sample(endpoints) if endpoints else Sample(())


async def _nodes(kube: KubePort) -> tuple[ObservedNode, ...]:
    """None where the operator may not see them, as where it serves chosen namespaces only."""
    return _observed(ObservedNode, await _select_if_allowed(kube, NODE, "", "") or ())


async def _refused_pods(
    kube: KubePort,
    namespace: str,
    groups: Iterable[ObservedLeaderWorkerSet],
    pods: Sequence[ObservedPod],
) -> dict[str, str]:
    """Nothing is read while no pod is missing, and nothing found where events may not be read."""
    found: dict[str, str] = {}
    for group in groups:
        for gap in gaps_in(group, pods):
            said = await _if_allowed(kube.events(namespace, gap.owner, CREATION_FAILED))
            if why := refusal(gap, _observed(ObservedEvent, said or ())):
                found.setdefault(group.name, why)
    return found


async def _select_if_allowed(
    kube: KubePort, kind: Kind, namespace: str, selector: str
) -> Sequence[Manifest] | None:
    return await _if_allowed(kube.select(kind, namespace, selector))


async def _if_allowed(read: Awaitable[Sequence[Manifest]]) -> Sequence[Manifest] | None:
    """None: the operator may not, as with rights that are older than this use."""
    try:
        return await read
    except KubeError as error:
        if error.status == _FORBIDDEN:
            return None
        raise


def _observed(model: type[_Observed], found: Iterable[Manifest]) -> tuple[_Observed, ...]:
    """What can be read; an object that a person mangled must not stop everything else."""
    result = []
    for manifest in found:
        try:
            result.append(model.model_validate(manifest))
        except ValidationError:
            continue
    return tuple(result)


def _by_name(
    children: Iterable[tuple[Kind, Sequence[Manifest]]],
) -> Iterable[tuple[tuple[Kind, str], Manifest]]:
    for kind, found in children:
        for manifest in found:
            yield (kind, Meta.model_validate(manifest["metadata"]).name), manifest


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


def _ours(kind: Kind, found: Iterable[Manifest], resource: Meta) -> Iterable[Manifest]:
    """Those that are the resource's own, each once."""
    seen = set()
    for manifest in found:
        metadata = Meta.model_validate(manifest["metadata"])
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
