"""What the operator reads of objects in the cluster: the few fields it decides on, typed."""

import re
from abc import abstractmethod
from collections.abc import Mapping
from typing import Annotated, ClassVar, Final

from pydantic import AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.alias_generators import to_camel

from fathom.api import names
from fathom.api.accelerators import GPU_RESOURCE
from fathom.core.engine_depths import depths_in
from fathom.core.kinds import DEPLOYMENT, LEADER_WORKER_SET, Kind

_GENERATION: Final = re.compile("[0-9]{1,18}")
LABEL_GROUP_INDEX: Final = "leaderworkerset.sigs.k8s.io/group-index"
"""On pods of a LeaderWorkerSet, by its controller."""


def _absent_as(default: object) -> BeforeValidator:
    """Kubernetes writes an empty list or map as null as often as not."""
    return BeforeValidator(lambda value: default if value is None else value)


class _Read(BaseModel):
    model_config = ConfigDict(
        frozen=True, extra="ignore", alias_generator=to_camel, validate_by_name=True
    )


_Strings = Annotated[Mapping[str, str], _absent_as({})]


def _count(quantity: int | str | None) -> int:
    """A quantity of whole things; what is spelled in another way than a number counts as none."""
    text = str(quantity)
    return int(text) if text.isdecimal() else 0


class Owner(_Read):
    uid: str
    kind: str = ""
    name: str = ""
    controller: bool = False


class Meta(_Read):
    name: str
    namespace: str = ""
    uid: str = ""
    generation: int = 0
    labels: _Strings = Field(default_factory=dict)
    annotations: _Strings = Field(default_factory=dict)
    creation_timestamp: AwareDatetime | None = None
    deletion_timestamp: AwareDatetime | None = None
    owner_references: Annotated[tuple[Owner, ...], _absent_as(())] = ()


class Condition(_Read):
    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_transition_time: AwareDatetime | None = None


class _ConfigMapSource(_Read):
    name: str = ""


class _Volume(_Read):
    config_map: _ConfigMapSource | None = None


class Taint(_Read):
    key: str
    value: str = ""
    effect: str = ""

    def __str__(self) -> str:
        return f"{self.key}{'=' if self.value else ''}{self.value}:{self.effect}"


class Toleration(_Read):
    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""

    def tolerates(self, taint: Taint) -> bool:
        """As the scheduler has it: an empty key (with Exists) or effect stands for all."""
        if self.effect not in {"", taint.effect} or self.key not in {"", taint.key}:
            return False
        return self.operator == "Exists" or (self.key != "" and self.value == taint.value)


class _Resources(_Read):
    limits: Annotated[Mapping[str, int | str], _absent_as({})] = Field(default_factory=dict)


class _Container(_Read):
    args: Annotated[tuple[str, ...], _absent_as(())] = ()
    resources: Annotated[_Resources, _absent_as(_Resources())] = _Resources()


class PodSpec(_Read):
    containers: Annotated[tuple[_Container, ...], _absent_as(())] = ()
    volumes: Annotated[tuple[_Volume, ...], _absent_as(())] = ()
    node_selector: _Strings = Field(default_factory=dict)
    tolerations: Annotated[tuple[Toleration, ...], _absent_as(())] = ()

    @property
    def gpus(self) -> int:
        """That the scheduler has to find on one node."""
        return sum(_count(each.resources.limits.get(GPU_RESOURCE)) for each in self.containers)

    @property
    def config_maps(self) -> frozenset[str]:
        return frozenset(volume.config_map.name for volume in self.volumes if volume.config_map)

    @property
    def named_depths(self) -> frozenset[int] | None:
        """That its engine was told of at start; None: its arguments do not say."""
        found = (depths_in(each.args) for each in self.containers)
        return next((each for each in found if each is not None), None)


class Waiting(_Read):
    reason: str = ""
    message: str = ""


class Terminated(_Read):
    reason: str = ""
    message: str = ""
    exit_code: int = 0


class ContainerState(_Read):
    waiting: Waiting | None = None
    terminated: Terminated | None = None


class ContainerStatus(_Read):
    name: str
    image: str = ""
    restart_count: int = 0
    state: Annotated[ContainerState, _absent_as(ContainerState())] = ContainerState()
    last_state: Annotated[ContainerState, _absent_as(ContainerState())] = ContainerState()


class _PodStatus(_Read):
    phase: str = ""
    reason: str = ""
    message: str = ""
    pod_ip: str = Field(default="", alias="podIP")
    conditions: Annotated[tuple[Condition, ...], _absent_as(())] = ()
    init_container_statuses: Annotated[tuple[ContainerStatus, ...], _absent_as(())] = ()
    container_statuses: Annotated[tuple[ContainerStatus, ...], _absent_as(())] = ()


class _Revised(_Read):
    """What belongs to one revision."""

    metadata: Meta

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def revision(self) -> str:
        return self.metadata.labels.get(names.LABEL_REVISION, "")


class ObservedPod(_Revised):
    """One pod of a SpeculativeDeployment."""

    spec: PodSpec = PodSpec()
    status: _PodStatus = _PodStatus()

    @property
    def leads(self) -> bool:
        """Whether it serves requests itself."""
        return self.metadata.labels.get(names.LABEL_ROLE) == names.ROLE_LEADER

    @property
    def group_index(self) -> int | None:
        """Which replica of its LeaderWorkerSet it belongs to; None: it is a replica by itself."""
        index = self.metadata.labels.get(LABEL_GROUP_INDEX, "")
        return int(index) if index.isdecimal() else None

    @property
    def terminating(self) -> bool:
        """On its way out; it holds its GPUs until it is gone."""
        return self.metadata.deletion_timestamp is not None

    @property
    def finished(self) -> bool:
        """Succeeded or failed for good (evicted, say): an object that holds nothing."""
        return self.status.phase in {"Succeeded", "Failed"}

    @property
    def ready(self) -> bool:
        condition = self.condition("Ready")
        return condition is not None and condition.status == "True" and not self.terminating

    @property
    def ready_since_s(self) -> float | None:
        """Unix seconds; None: not ready."""
        condition = self.condition("Ready")
        if not self.ready or condition is None or condition.last_transition_time is None:
            return None
        return condition.last_transition_time.timestamp()

    def condition(self, kind: str) -> Condition | None:
        return next((each for each in self.status.conditions if each.type == kind), None)

    @property
    def unscheduled(self) -> Condition | None:
        """What the scheduler says, which has looked for a node and found none; None: it has not."""
        scheduled = self.condition("PodScheduled")
        if scheduled is None or scheduled.status != "False" or self.terminating:
            return None
        return scheduled


class _PodTemplate(_Read):
    spec: PodSpec = PodSpec()


class ObservedWorkload(_Revised):
    """What holds one revision's pods: a Deployment or, over several nodes, a LeaderWorkerSet."""

    kind: ClassVar[Kind]

    @property
    @abstractmethod
    def replicas(self) -> int:
        """Replicas that it asks for."""

    @property
    @abstractmethod
    def config_maps(self) -> frozenset[str]:
        """That its pods mount."""

    @property
    def conditions(self) -> tuple[Condition, ...]:
        return ()

    @property
    def rendered_by(self) -> str:
        """The Fathom version that rendered its pods."""
        return self.metadata.annotations.get(names.ANNOTATION_RENDERED_BY, "")

    @property
    def plugin(self) -> str:
        """The plugin ConfigMap that its pods mount; empty: none."""
        return self.metadata.annotations.get(names.ANNOTATION_PLUGIN, "")

    @property
    def generation(self) -> int:
        """Of the resource for which it was last written; 0: not known."""
        text = self.metadata.annotations.get(names.ANNOTATION_GENERATION, "")
        return int(text) if _GENERATION.fullmatch(text) else 0

    @property
    def weights(self) -> str:
        """What it says of the commits that its pods load; empty: nothing."""
        return self.metadata.annotations.get(names.ANNOTATION_WEIGHTS, "")


class _JobSpec(_Read):
    template: _PodTemplate = _PodTemplate()


class _JobStatus(_Read):
    conditions: Annotated[tuple[Condition, ...], _absent_as(())] = ()


class ObservedJob(_Read):
    """A Job that fetches weights."""

    metadata: Meta
    spec: _JobSpec = _JobSpec()
    status: _JobStatus = _JobStatus()

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def complete(self) -> bool:
        return self._condition("Complete") is not None

    @property
    def failed(self) -> str | None:
        """Why it was given up, in Kubernetes' words; None: it was not."""
        condition = self._condition("Failed")
        return None if condition is None else condition.message or condition.reason

    def _condition(self, kind: str) -> Condition | None:
        found = (each for each in self.status.conditions if each.type == kind)
        return next((each for each in found if each.status == "True"), None)


class _DeploymentSpec(_Read):
    replicas: int = 1
    template: _PodTemplate = _PodTemplate()


class _DeploymentStatus(_Read):
    conditions: Annotated[tuple[Condition, ...], _absent_as(())] = ()


class ObservedDeployment(ObservedWorkload):
    """One pod per replica."""

    kind = DEPLOYMENT

    spec: _DeploymentSpec = _DeploymentSpec()
    status: _DeploymentStatus = _DeploymentStatus()

    @property
    def replicas(self) -> int:
        return self.spec.replicas

    @property
    def config_maps(self) -> frozenset[str]:
        return self.spec.template.spec.config_maps

    @property
    def conditions(self) -> tuple[Condition, ...]:
        return self.status.conditions


class _LeaderWorkerTemplate(_Read):
    size: int = 1
    leader_template: _PodTemplate = _PodTemplate()
    worker_template: _PodTemplate = _PodTemplate()


class _LeaderWorkerSetSpec(_Read):
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
    def config_maps(self) -> frozenset[str]:
        template = self.spec.leader_worker_template
        return template.leader_template.spec.config_maps | template.worker_template.spec.config_maps


class ObservedConfigMap(_Read):
    metadata: Meta
    data: _Strings = Field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def component(self) -> str:
        """`depth`, `tuning`, `plugin` or `fetch`."""
        return self.metadata.labels.get(names.LABEL_COMPONENT, "")


class _EventSeries(_Read):
    last_observed_time: AwareDatetime | None = None


class ObservedEvent(_Read):
    """What some controller told of an object."""

    metadata: Meta
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


class _NodeSpec(_Read):
    taints: Annotated[tuple[Taint, ...], _absent_as(())] = ()


class _NodeStatus(_Read):
    allocatable: Annotated[Mapping[str, int | str], _absent_as({})] = Field(default_factory=dict)


class ObservedNode(_Read):
    """One node of the cluster."""

    metadata: Meta
    spec: _NodeSpec = _NodeSpec()
    status: _NodeStatus = _NodeStatus()

    @property
    def gpus(self) -> int:
        """That pods can have of it, taken or not."""
        return _count(self.status.allocatable.get(GPU_RESOURCE))
