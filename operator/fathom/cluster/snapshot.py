"""All the operator may know when it decides, gathered once and frozen."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from fathom.api.newer_release import pruned, read_known
from fathom.api.problem import Problem
from fathom.api.status import ReportedStatus, SpeculativeDeploymentStatus
from fathom.api.tuner import SpeculationTunerStatus
from fathom.cluster.kinds import SPECULATION_TUNER, Kind, ObjectKey, ServedApis
from fathom.cluster.manifest import Manifest, Meta
from fathom.cluster.observed import ObservedConfigMap, ObservedJob, ObservedNode, ObservedWorkload
from fathom.cluster.observed_pods import ObservedPod
from fathom.engine.depth import DepthDocument
from fathom.measurement.counters import PodCounters, Unread
from fathom.resource import SpeculationTuner

Status = TypeVar("Status", bound=ReportedStatus)


@dataclass(frozen=True, slots=True, kw_only=True)
class TunedObjects:
    """What the API server held at one moment of a resource whose depth is tuned, of either kind."""

    read_at_s: float
    resource: Manifest
    """As it was read, valid or not, without `unknown`."""
    metadata: Meta
    status: ReportedStatus | None
    """None: none written yet, or not by this version."""
    pods: tuple[ObservedPod, ...]
    depth: DepthDocument | None
    """The depth document; None: none, or not a readable one."""
    tuning: Mapping[str, str]
    """What survives a restart of the operator, as it was last written."""
    live: Mapping[tuple[Kind, str], Manifest] = field(repr=False)
    """Every child as it was read, to compare with what is rendered."""
    foreign: Mapping[tuple[Kind, str], Meta] = field(default_factory=dict)
    """What bears a name that the resource needs, and is not its own."""
    unknown: tuple[str, ...] = ()
    """Fields of the resource that its CRD knows and this release does not."""

    @property
    def key(self) -> ObjectKey:
        return ObjectKey(self.metadata.namespace, self.metadata.name)

    @property
    def leaders(self) -> tuple[ObservedPod, ...]:
        """Pods that serve requests and hold GPUs."""
        return tuple(pod for pod in self.pods if not pod.finished)


@dataclass(frozen=True, slots=True, kw_only=True)
class Objects(TunedObjects):
    """The same of a SpeculativeDeployment, with what it is made of."""

    status: SpeculativeDeploymentStatus | None
    workloads: tuple[ObservedWorkload, ...]
    config_maps: tuple[ObservedConfigMap, ...]
    optional: frozenset[Kind] = frozenset()
    """Kinds that can be made here, among those that are made only where that can be done."""
    served: ServedApis = field(default_factory=ServedApis)
    """What the cluster has."""
    jobs: tuple[ObservedJob, ...] = ()
    """That fetch weights, train a draft or take one in."""
    refused_pods: Mapping[str, str] = field(default_factory=dict)
    """By LeaderWorkerSet or Job: why pods of it are not created, in the cluster's words."""
    nodes: tuple[ObservedNode, ...] = ()
    """The cluster's, while a pod finds none; empty: no need to know, or no right to."""
    bench: Manifest | None = field(default=None, repr=False)
    """The Job of that name, while a replica lacks a place; None: none, or no need to know."""
    from_watches: bool = False
    """Whether pods, or what makes them, are as watches have told, and were not read just now."""

    @property
    def untouched(self) -> bool:
        """Whether nothing was ever made for it: no trace of that is left anywhere."""
        return self.status is None and not self.live and not self.tuning

    def has_workload(self, revision: str) -> bool:
        """Whether some workload is of a revision, also one that is scaled to 0."""
        return any(each.revision == revision for each in self.workloads)

    @property
    def engines(self) -> tuple[ObservedPod, ...]:
        """Pods that hold GPUs: leaders, and the headless workers of groups."""
        return tuple(
            pod for pod in self.pods if (pod.leads or pod.group is not None) and not pod.finished
        )

    @property
    def leaders(self) -> tuple[ObservedPod, ...]:
        """Pods that serve requests and hold GPUs."""
        return tuple(pod for pod in self.engines if pod.leads)

    @property
    def failed(self) -> tuple[ObservedPod, ...]:
        """Pods that hold nothing any more, since they failed for good."""
        return tuple(
            pod
            for pod in self.pods
            if (pod.leads or pod.group is not None) and pod.status.phase == "Failed"
        )

    @property
    def standing(self) -> tuple[ObservedPod, ...]:
        """Leaders, but for those whose node died: nobody waits until they are gone."""
        return tuple(pod for pod in self.leaders if not pod.lost(self.read_at_s))


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectedObjects(TunedObjects):
    """The same of a SpeculationTuner: its pods are those that its selector finds."""

    status: SpeculationTunerStatus | None
    tuner: SpeculationTuner | tuple[Problem, ...]
    """The resource as its user wrote it; or what is wrong with it."""

    @property
    def key(self) -> ObjectKey:
        return ObjectKey(self.metadata.namespace, self.metadata.name, SPECULATION_TUNER)


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """One pass's input."""

    now_s: float
    objects: Objects
    counters: Mapping[str, PodCounters]
    """By pod; a pod that could not be read is absent."""
    metrics_failures: tuple[Unread, ...]
    served: ServedApis


def status_in(resource: Manifest, model: type[Status]) -> Status | None:
    """The status a resource carries; None if there is none that this version understands.

    Without what a later one has added: a condition of another kind must not cost the rest.
    """
    status = resource.get("status")
    if not isinstance(status, dict) or not status:
        return None
    return read_known(pruned(model, status).known, model.model_validate)[0]
