"""Reaches a cluster, and reads what `explain`, `status` and the like show. Never writes."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from fathom.adapters import kube_config
from fathom.adapters.jobs import JobCluster, PodLog
from fathom.adapters.kube import Kube
from fathom.adapters.ports import KubePort, SystemClock
from fathom.api import names
from fathom.api.conditions import AlarmKind, ConditionType
from fathom.api.problem import Problem
from fathom.api.status import Condition, SpeculativeDeploymentStatus
from fathom.cluster.kinds import CONFIG_MAP, SPECULATIVE_DEPLOYMENT, ObjectKey
from fathom.cluster.manifest import Manifest, Meta
from fathom.cluster.observed import ObservedConfigMap
from fathom.cluster.snapshot import status_in
from fathom.engine.depth import DepthDocument
from fathom.manifests.config_maps import STATE_KEY
from fathom.measurement.bench_result import RESULT_KEY, DepthBench
from fathom.resource import SpeculativeDeployment, known_part, parse
from fathom.tuning.learned_state import TuningState
from fathom_vllm.environment import DEPTH_KEY


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveResource:
    """One SpeculativeDeployment and what its operator keeps beside it."""

    resource: SpeculativeDeployment | tuple[Problem, ...]
    """As its user wrote it; or what is wrong with it."""
    status: SpeculativeDeploymentStatus
    document: DepthDocument | None
    """None: there is none, or not a readable one."""
    state: TuningState
    """At most a minute old; empty: none was kept yet."""


@dataclass(frozen=True, slots=True)
class Reported:
    """One SpeculativeDeployment as its own object reports it."""

    metadata: Meta
    status: SpeculativeDeploymentStatus | None
    """None: no operator has reported on it, or it is not a readable one."""
    unreadable: bool = False
    """Whether it has one that this release cannot read."""

    @property
    def key(self) -> ObjectKey:
        return ObjectKey(self.metadata.namespace, self.metadata.name)

    def condition(self, kind: ConditionType | AlarmKind) -> Condition | None:
        """What it says of one subject; None: nothing."""
        return self.status.condition(kind) if self.status else None


@asynccontextmanager
async def connected(kubeconfig: Path | None, context: str) -> AsyncIterator[KubePort]:
    """The cluster that a kubeconfig names.

    Raises:
        NoClusterError: it names none.
    """
    configuration = await kube_config.load(kubeconfig, context)
    async with kube_config.client(configuration) as api:
        yield Kube(api)


@asynccontextmanager
async def connected_for_jobs(kubeconfig: Path | None, context: str) -> AsyncIterator[JobCluster]:
    """The same, for whoever makes a Job.

    Raises:
        NoClusterError: it names none.
    """
    configuration = await kube_config.load(kubeconfig, context)
    async with kube_config.client(configuration) as api:
        yield JobCluster(kube=Kube(api), logs=PodLog(api), clock=SystemClock())


def placed(
    sd: SpeculativeDeployment, *, namespace: str, context: str, kubeconfig: Path | None
) -> SpeculativeDeployment:
    """The resource of a manifest, in a namespace.

    Args:
        sd: it may name one.
        namespace: for one that names none; empty: the context's.
        context: of the kubeconfig; empty: its current one.
        kubeconfig: None: as kubectl finds it.

    Raises:
        NoClusterError: there is no such kubeconfig or context.
    """
    if sd.metadata.namespace:
        return sd
    found = namespace or kube_config.namespace(kubeconfig, context)
    return replace(sd, metadata=sd.metadata.model_copy(update={"namespace": found}))


async def read_resource(kube: KubePort, key: ObjectKey) -> LiveResource | None:
    """Read one resource; None: there is none of that name.

    Raises:
        KubeError: one of the reads failed.
    """
    resource, depth, tuning = await asyncio.gather(
        kube.get(SPECULATIVE_DEPLOYMENT, key.namespace, key.name),
        config_map_data(kube, key.namespace, names.depth_config_map(key.name)),
        config_map_data(kube, key.namespace, names.tuning_config_map(key.name)),
    )
    if resource is None:
        return None
    return LiveResource(
        resource=parse(known_part(resource).known),
        status=status_in(resource, SpeculativeDeploymentStatus) or SpeculativeDeploymentStatus(),
        document=DepthDocument.from_json(depth.get(DEPTH_KEY, "")),
        state=TuningState.from_json(tuning.get(STATE_KEY, "")),
    )


async def read_reported(kube: KubePort, key: ObjectKey) -> Reported | None:
    """Read one resource alone; None: there is none of that name.

    Raises:
        KubeError: it cannot be read.
    """
    resource = await kube.get(SPECULATIVE_DEPLOYMENT, key.namespace, key.name)
    if resource is None:
        return None
    return _reported(resource)


async def read_bench(kube: KubePort, key: ObjectKey) -> DepthBench | None:
    """Read what `fathom bench` found last; None: nothing.

    Raises:
        KubeError: it cannot be read.
    """
    found = await config_map_data(kube, key.namespace, names.bench(key.name))
    return DepthBench.from_json(found.get(RESULT_KEY, ""))


async def read_all(kube: KubePort, namespace: str) -> tuple[Reported, ...]:
    """List all resources of a namespace; empty: of all of them.

    Raises:
        KubeError: they cannot be read.
    """
    found = await kube.select(SPECULATIVE_DEPLOYMENT, namespace, "")
    return tuple(sorted(map(_reported, found), key=lambda each: each.key))


def _reported(resource: Manifest) -> Reported:
    status = status_in(resource, SpeculativeDeploymentStatus)
    unreadable = status is None and bool(resource.get("status"))
    return Reported(Meta.model_validate(resource["metadata"]), status, unreadable)


async def config_map_data(kube: KubePort, namespace: str, name: str) -> Mapping[str, str]:
    """A ConfigMap's data; empty if there is none.

    Raises:
        KubeError: it cannot be read.
    """
    found = await kube.get(CONFIG_MAP, namespace, name)
    return ObservedConfigMap.model_validate(found).data if found is not None else {}
