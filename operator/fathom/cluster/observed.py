"""What the operator reads of workloads, ConfigMaps, events and nodes: the few fields it decides on.

Pods have a file of their own.
"""

import re
from abc import abstractmethod
from collections.abc import Mapping
from typing import Annotated, ClassVar, Final

from pydantic import AwareDatetime, Field

from fathom.api import names
from fathom.api.accelerators import Vendor
from fathom.cluster.kinds import DEPLOYMENT, LEADER_WORKER_SET, Kind
from fathom.cluster.manifest import (
    Meta,
    ObservedCondition,
    ObservedModel,
    Strings,
    absent_as,
    count,
)
from fathom.cluster.observed_pods import PodSpec, PodTemplate, Revised, Taint

_GENERATION: Final = re.compile("[0-9]{1,18}")
_REASON: Final = re.compile("[A-Za-z]{1,40}")


class ObservedWorkload(Revised):
    """What holds one revision's pods: a Deployment or, over several nodes, a LeaderWorkerSet."""

    kind: ClassVar[Kind]

    @property
    @abstractmethod
    def replicas(self) -> int:
        """Replicas that it asks for."""

    @property
    @abstractmethod
    def leader(self) -> PodSpec:
        """The spec of its pods that serve, as it was rendered."""

    @property
    @abstractmethod
    def config_maps(self) -> frozenset[str]:
        """That its pods mount."""

    @property
    def conditions(self) -> tuple[ObservedCondition, ...]:
        return ()

    @property
    def rendered_by(self) -> str:
        """The version of the Fathom that rendered its pods; empty: not known."""
        return self._rendered.partition(" ")[0]

    @property
    def rendering(self) -> str:
        """Hash of its pods as they were rendered; empty: by a Fathom that left none."""
        return self._rendered.partition(" ")[2]

    @property
    def _rendered(self) -> str:
        return self.metadata.annotations.get(names.ANNOTATION_RENDERED_BY, "")

    @property
    def plugin(self) -> str:
        """The plugin ConfigMap that its pods mount; empty: none."""
        return self.metadata.annotations.get(names.ANNOTATION_PLUGIN, "")

    @property
    def generation(self) -> int:
        """Generation of the resource for which it was last written; 0: not known."""
        text = self.metadata.annotations.get(names.ANNOTATION_GENERATION, "")
        return int(text) if _GENERATION.fullmatch(text) else 0

    @property
    def weights(self) -> str:
        """What it says of the commits that its pods load; empty: nothing."""
        return self.metadata.annotations.get(names.ANNOTATION_WEIGHTS, "")


class _JobSpec(ObservedModel):
    active_deadline_seconds: int | None = None
    template: PodTemplate = PodTemplate()


class _JobStatus(ObservedModel):
    start_time: AwareDatetime | None = None
    conditions: Annotated[tuple[ObservedCondition, ...], absent_as(())] = ()


class ObservedJob(ObservedModel):
    """A Job that fetches weights, trains a draft or takes one in."""

    metadata: Meta
    spec: _JobSpec = _JobSpec()
    status: _JobStatus = _JobStatus()

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def component(self) -> str:
        """`fetch`, `training` or `intake`."""
        return self.metadata.labels.get(names.LABEL_COMPONENT, "")

    @property
    def complete(self) -> bool:
        return self._condition("Complete") is not None

    @property
    def failed(self) -> str | None:
        """Why it was given up, in Kubernetes' words; None: it was not."""
        condition = self._condition("Failed")
        return None if condition is None else condition.message or condition.reason

    @property
    def started_at_s(self) -> float | None:
        """From when its deadline counts, in Unix seconds; None: it waits, as for a queue."""
        at = self.status.start_time
        return None if at is None else at.timestamp()

    @property
    def deadline_s(self) -> int | None:
        """Seconds after that, in which it is ended; None: it may take as long as it likes."""
        return self.spec.active_deadline_seconds

    @property
    def ended(self) -> bool:
        """Whether it is complete, or was given up."""
        return self.complete or self.failed is not None

    @property
    def reason(self) -> str:
        """Why it was given up, in one word of Kubernetes'; empty: it was not.

        For Jobs whose pods nobody trusts: whatever may write a message, this is no text of theirs.
        """
        condition = self._condition("Failed")
        if condition is None:
            return ""
        return condition.reason if _REASON.fullmatch(condition.reason) else "no reason was given"

    def _condition(self, kind: str) -> ObservedCondition | None:
        found = (each for each in self.status.conditions if each.type == kind)
        return next((each for each in found if each.status == "True"), None)


class _DeploymentSpec(ObservedModel):
    replicas: int = 1
    template: PodTemplate = PodTemplate()


class _DeploymentStatus(ObservedModel):
    conditions: Annotated[tuple[ObservedCondition, ...], absent_as(())] = ()


class ObservedDeployment(ObservedWorkload):
    """One pod per replica."""

    kind = DEPLOYMENT

    spec: _DeploymentSpec = _DeploymentSpec()
    status: _DeploymentStatus = _DeploymentStatus()

    @property
    def replicas(self) -> int:
        return self.spec.replicas

    @property
    def leader(self) -> PodSpec:
        return self.spec.template.spec

    @property
    def config_maps(self) -> frozenset[str]:
        return self.leader.config_maps

    @property
    def conditions(self) -> tuple[ObservedCondition, ...]:
        return self.status.conditions


class _LeaderWorkerTemplate(ObservedModel):
    size: int = 1
    leader_template: PodTemplate = PodTemplate()
    worker_template: PodTemplate = PodTemplate()


class _LeaderWorkerSetSpec(ObservedModel):
    replicas: int = 1
    leader_worker_template: _LeaderWorkerTemplate = _LeaderWorkerTemplate()


class ObservedLeaderWorkerSet(ObservedWorkload):
    """A group of pods per replica."""

    kind = LEADER_WORKER_SET

    spec: _LeaderWorkerSetSpec = _LeaderWorkerSetSpec()

    @property
    def replicas(self) -> int:
        return self.spec.replicas

    @property
    def size(self) -> int:
        """Pods of one group, its leader among them."""
        return self.spec.leader_worker_template.size

    @property
    def leader(self) -> PodSpec:
        return self.spec.leader_worker_template.leader_template.spec

    @property
    def config_maps(self) -> frozenset[str]:
        worker = self.spec.leader_worker_template.worker_template
        return self.leader.config_maps | worker.spec.config_maps


class ObservedConfigMap(ObservedModel):
    metadata: Meta
    data: Strings = Field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def component(self) -> str:
        """`depth`, `tuning`, `plugin`, `fetch` or `intake`."""
        return self.metadata.labels.get(names.LABEL_COMPONENT, "")


class _EventSeries(ObservedModel):
    last_observed_time: AwareDatetime | None = None


class ObservedEvent(ObservedModel):
    """What some controller told of an object."""

    metadata: Meta
    reason: str = ""
    message: str = ""
    last_timestamp: AwareDatetime | None = None
    event_time: AwareDatetime | None = None
    series: _EventSeries | None = None

    @property
    def at_s(self) -> float:
        """When it was told last (Unix seconds); the two APIs of events write different fields."""
        times = (
            self.last_timestamp,
            self.series.last_observed_time if self.series else None,
            self.event_time,
            self.metadata.creation_timestamp,
        )
        return max((at.timestamp() for at in times if at is not None), default=0.0)


class _NodeSpec(ObservedModel):
    taints: Annotated[tuple[Taint, ...], absent_as(())] = ()


class _NodeStatus(ObservedModel):
    allocatable: Annotated[Mapping[str, int | str], absent_as({})] = Field(default_factory=dict)


class ObservedNode(ObservedModel):
    """One node of the cluster."""

    metadata: Meta
    spec: _NodeSpec = _NodeSpec()
    status: _NodeStatus = _NodeStatus()

    def gpus(self, vendor: Vendor) -> int:
        """That pods can have of it, taken or not."""
        return count(self.status.allocatable.get(vendor.resource))
