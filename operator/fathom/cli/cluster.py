"""Reaches a cluster, and reads what `explain`, `status` and the like show. Never writes."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Final, Generic, TypeVar

from fathom.adapters import kube_config
from fathom.adapters.jobs import JobCluster, PodLog
from fathom.adapters.kube import Kube
from fathom.adapters.ports import KubeError, KubePort, SystemClock
from fathom.api import names
from fathom.api.conditions import AlarmKind, ConditionType
from fathom.api.status import Condition, ReportedStatus, SpeculativeDeploymentStatus
from fathom.api.tuner import SpeculationTunerStatus
from fathom.cluster.kinds import (
    CONFIG_MAP,
    RESOURCE_KINDS,
    SPECULATION_TUNER,
    SPECULATIVE_DEPLOYMENT,
    Kind,
    ObjectKey,
)
from fathom.cluster.manifest import Manifest, Meta
from fathom.cluster.observed import ObservedConfigMap
from fathom.cluster.snapshot import Status, status_in
from fathom.engine.depth import DepthDocument
from fathom.manifests.config_maps import STATE_KEY
from fathom.measurement.bench_result import RESULT_KEY, DepthBench
from fathom.page.subject import AnySubject, Subject, subject_in
from fathom.resource import SpeculativeDeployment
from fathom.tuning.learned_state import TuningState
from fathom_vllm.environment import DEPTH_KEY

_Status_co = TypeVar("_Status_co", bound=ReportedStatus, covariant=True)
TUNER_PREFIX: Final = "tuner/"
"""Before the name of a SpeculationTuner, where both kinds are named."""
_STATUSES: Final[Mapping[Kind, type[ReportedStatus]]] = MappingProxyType(
    {
        SPECULATIVE_DEPLOYMENT: SpeculativeDeploymentStatus,
        SPECULATION_TUNER: SpeculationTunerStatus,
    }
)
_KEPT: Final[Mapping[Kind, tuple[Callable[[str], str], Callable[[str], str]]]] = MappingProxyType(
    {
        SPECULATIVE_DEPLOYMENT: (names.depth_config_map, names.tuning_config_map),
        SPECULATION_TUNER: (names.tuner_depth_config_map, names.tuner_state_config_map),
    }
)
"""By kind, the ConfigMaps with the depth document and with what was learned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reported(Generic[_Status_co]):
    """One resource as its own object reports it."""

    kind: Kind = SPECULATIVE_DEPLOYMENT
    metadata: Meta
    status: _Status_co | None
    """None: no operator has reported on it, or it is not a readable one."""
    unreadable: bool = False
    """Whether it has one that this release cannot read."""
    resource: Manifest = field(default_factory=dict)
    """As it was read."""

    @property
    def key(self) -> ObjectKey:
        return ObjectKey(self.metadata.namespace, self.metadata.name, self.kind)

    @property
    def typed(self) -> str:
        """Its name as commands take it, and no other of the namespace has it."""
        name = self.metadata.name
        return name if self.kind == SPECULATIVE_DEPLOYMENT else f"{TUNER_PREFIX}{name}"

    @property
    def hides_training(self) -> bool:
        """Whether it tells of a training that this release cannot read."""
        told, status = self.resource.get("status"), self.status
        known = status.training if isinstance(status, SpeculativeDeploymentStatus) else None
        return isinstance(told, dict) and bool(told.get("training")) and known is None

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


async def read_subject(kube: KubePort, key: ObjectKey) -> AnySubject | None:
    """Read one resource, and what its operator keeps beside it; None: there is none of that name.

    Raises:
        KubeError: one of the reads failed.
    """
    name_of_depth, name_of_state = _KEPT[key.kind]
    resource, depth, state = await asyncio.gather(
        kube.get(key.kind, key.namespace, key.name),
        config_map_data(kube, key.namespace, name_of_depth(key.name)),
        config_map_data(kube, key.namespace, name_of_state(key.name)),
    )
    if resource is None:
        return None
    return subject_in(
        key,
        resource,
        status_in(resource, _STATUSES[key.kind]),
        document=DepthDocument.from_json(depth.get(DEPTH_KEY, "")),
        state=TuningState.from_json(state.get(STATE_KEY, "")),
    )


async def read_resource(kube: KubePort, key: ObjectKey) -> Subject | None:
    """The same of a SpeculativeDeployment.

    Raises:
        KubeError: one of the reads failed.
    """
    found = await read_subject(kube, key)
    return found if isinstance(found, Subject) else None


AnyReported = Reported[ReportedStatus]
"""One of either kind."""


@dataclass(frozen=True, slots=True)
class Listed:
    """All resources of a namespace, or of all, as far as they may be read."""

    found: tuple[AnyReported, ...]
    """By namespace and name."""
    left_out: Mapping[Kind, KubeError] = field(default_factory=dict)
    """Kinds that may not be listed, and what the API server says of it."""


async def read_reported(kube: KubePort, key: ObjectKey) -> AnyReported | None:
    """Read one resource of either kind alone; None: there is none of that name.

    Raises:
        KubeError: it cannot be read.
    """
    resource = await kube.get(key.kind, key.namespace, key.name)
    return None if resource is None else _reported(resource, key.kind, _STATUSES[key.kind])


async def read_deployment(
    kube: KubePort, key: ObjectKey
) -> Reported[SpeculativeDeploymentStatus] | None:
    """The same of a SpeculativeDeployment."""
    kind = SPECULATIVE_DEPLOYMENT
    resource = await kube.get(kind, key.namespace, key.name)
    return None if resource is None else _reported(resource, kind, SpeculativeDeploymentStatus)


async def read_bench(kube: KubePort, key: ObjectKey) -> DepthBench | None:
    """Read what `fathom bench` found last; None: nothing.

    Raises:
        KubeError: it cannot be read.
    """
    found = await config_map_data(kube, key.namespace, names.bench(key.name))
    return DepthBench.from_json(found.get(RESULT_KEY, ""))


async def read_all(kube: KubePort, namespace: str) -> Listed:
    """List all resources of a namespace; empty: of all of them.

    Raises:
        KubeError: they cannot be read, or none of them may be.
    """
    answers = await asyncio.gather(*(_all_of(kind, kube, namespace) for kind in RESOURCE_KINDS))
    found, left_out = list[AnyReported](), dict[Kind, KubeError]()
    for kind, answer in zip(RESOURCE_KINDS, answers, strict=True):
        if isinstance(answer, KubeError):
            left_out[kind] = answer
        else:
            found += answer
    if len(left_out) == len(RESOURCE_KINDS):
        raise left_out[SPECULATIVE_DEPLOYMENT]
    return Listed(tuple(sorted(found, key=lambda each: each.key)), left_out)


async def _all_of(
    kind: Kind, kube: KubePort, namespace: str
) -> tuple[AnyReported, ...] | KubeError:
    try:
        found = await kube.select(kind, namespace, "")
    except KubeError as error:
        if error.gone and kind == SPECULATION_TUNER:  # Fathom was installed without its CRD
            return ()
        if error.forbidden:
            return error
        raise
    return tuple(_reported(each, kind, _STATUSES[kind]) for each in found)


def _reported(resource: Manifest, kind: Kind, model: type[Status]) -> Reported[Status]:
    status = status_in(resource, model)
    return Reported(
        kind=kind,
        metadata=Meta.model_validate(resource["metadata"]),
        status=status,
        unreadable=status is None and bool(resource.get("status")),
        resource=resource,
    )


async def config_map_data(kube: KubePort, namespace: str, name: str) -> Mapping[str, str]:
    """A ConfigMap's data; empty if there is none.

    Raises:
        KubeError: it cannot be read.
    """
    found = await kube.get(CONFIG_MAP, namespace, name)
    return ObservedConfigMap.model_validate(found).data if found is not None else {}
