"""What the operator reads of pods: the few fields it decides on, typed."""

from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Final, NamedTuple

from pydantic import AwareDatetime, Field

from fathom.api import names
from fathom.api.accelerators import NVIDIA, VENDORS, Vendor
from fathom.cluster.manifest import (
    Meta,
    ObservedCondition,
    ObservedModel,
    Strings,
    absent_as,
    count,
)
from fathom.engine.argument_parser import EngineArguments
from fathom.engine.depth_set import depths_in
from fathom.engine.replica_layout import HOST_FLAG
from fathom.engine.report import NOTHING_TOLD, EngineReport, ServedPair, asked_by, served_by

LABEL_GROUP_INDEX: Final = "leaderworkerset.sigs.k8s.io/group-index"
LABEL_GROUP_SET: Final = "leaderworkerset.sigs.k8s.io/name"
"""On pods of a LeaderWorkerSet, by its controller."""
_LOST_S: Final = 300.0
"""After the time at which a pod was to be gone: what a busy kubelet may take to say so."""


class _ConfigMapSource(ObservedModel):
    name: str = ""


class _Volume(ObservedModel):
    config_map: _ConfigMapSource | None = None


class Taint(ObservedModel):
    key: str
    value: str = ""
    effect: str = ""

    def __str__(self) -> str:
        return f"{self.key}{'=' if self.value else ''}{self.value}:{self.effect}"


class ObservedToleration(ObservedModel):
    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""

    def tolerates(self, taint: Taint) -> bool:
        """As the scheduler has it: an empty key (with Exists) or effect stands for all."""
        if self.effect not in {"", taint.effect} or self.key not in {"", taint.key}:
            return False
        return self.operator == "Exists" or (self.key != "" and self.value == taint.value)


class _LabelExpression(ObservedModel):
    key: str = ""
    operator: str = ""
    values: Annotated[tuple[str, ...], absent_as(())] = ()


class _NodeTerm(ObservedModel):
    match_expressions: Annotated[tuple[_LabelExpression, ...], absent_as(())] = ()


class _NodeTerms(ObservedModel):
    node_selector_terms: Annotated[tuple[_NodeTerm, ...], absent_as(())] = ()


class _NodeAffinity(ObservedModel):
    required: Annotated[
        _NodeTerms | None, Field(alias="requiredDuringSchedulingIgnoredDuringExecution")
    ] = None


class _Affinity(ObservedModel):
    node_affinity: _NodeAffinity | None = None


class _Resources(ObservedModel):
    limits: Annotated[Mapping[str, int | str], absent_as({})] = Field(default_factory=dict)


class _Container(ObservedModel):
    name: str = ""
    image: str = ""
    command: Annotated[tuple[str, ...], absent_as(())] = ()
    args: Annotated[tuple[str, ...], absent_as(())] = ()
    resources: Annotated[_Resources, absent_as(_Resources())] = _Resources()

    @property
    def arguments(self) -> EngineArguments:
        """As vLLM would read them. Not kept: what is read of them is."""
        return EngineArguments.of(self.args)


class _InitContainer(ObservedModel):
    name: str = ""
    restart_policy: str = ""

    @property
    def is_sidecar(self) -> bool:
        """Whether it runs beside the others, and not to its end before them."""
        return self.restart_policy == "Always"


class PodSpec(ObservedModel):
    init_containers: Annotated[tuple[_InitContainer, ...], absent_as(())] = ()
    containers: Annotated[tuple[_Container, ...], absent_as(())] = ()
    volumes: Annotated[tuple[_Volume, ...], absent_as(())] = ()
    node_selector: Strings = Field(default_factory=dict)
    affinity: _Affinity | None = None
    tolerations: Annotated[tuple[ObservedToleration, ...], absent_as(())] = ()

    @property
    def vendor(self) -> Vendor:
        """Whose GPUs it asks for."""
        asked = {name for each in self.containers for name in each.resources.limits}
        return next((each for each in VENDORS if each.resource in asked), NVIDIA)

    @property
    def gpus(self) -> int:
        """That the scheduler has to find on one node."""
        name = self.vendor.resource
        return sum(count(each.resources.limits.get(name)) for each in self.containers)

    @property
    def asked_labels(self) -> Mapping[str, frozenset[str]]:
        """Labels that a node must carry, each with the values that will do.

        Of affinity, what a single term says by In: the operator writes no other.
        """
        asked = {key: frozenset({value}) for key, value in self.node_selector.items()}
        required = self.affinity and self.affinity.node_affinity
        terms = required.required.node_selector_terms if required and required.required else ()
        for each in terms[0].match_expressions if len(terms) == 1 else ():
            if each.operator == "In":
                values = frozenset(each.values)
                asked[each.key] = asked.get(each.key, values) & values
        return asked

    @property
    def config_maps(self) -> frozenset[str]:
        return frozenset(volume.config_map.name for volume in self.volumes if volume.config_map)

    @cached_property
    def named_depths(self) -> frozenset[int] | None:
        """That its engine was told of at start; None: its arguments do not say."""
        found = (depths_in(each.arguments) for each in self.containers)
        return next((each for each in found if each is not None), None)

    @cached_property
    def asks_for(self) -> EngineReport:
        """What its engine's arguments ask for."""
        ours = [each for each in self.containers if each.name == names.ENGINE_CONTAINER]
        return asked_by(ours[0].arguments) if ours else NOTHING_TOLD

    @cached_property
    def served_pair(self) -> ServedPair | None:
        """What its engine was told to load; None: which container that is, is not known."""
        found = {each.name: (each.image, (*each.command, *each.args)) for each in self.containers}
        return served_by(found)

    @cached_property
    def host(self) -> str | None:
        """Where its engine listens; None: its arguments do not say."""
        found = (each.arguments.value(HOST_FLAG) for each in self.containers)
        return next((each for each in found if each is not None), None)


class Waiting(ObservedModel):
    reason: str = ""
    message: str = ""


class Terminated(ObservedModel):
    reason: str = ""
    message: str = ""
    exit_code: int = 0
    finished_at: AwareDatetime | None = None


class ContainerState(ObservedModel):
    waiting: Waiting | None = None
    terminated: Terminated | None = None


class ContainerStatus(ObservedModel):
    name: str
    image: str = ""
    restart_count: int = 0
    ready: bool = False
    """Whether it is ready or, where it runs to its end, ended well."""
    state: Annotated[ContainerState, absent_as(ContainerState())] = ContainerState()
    last_state: Annotated[ContainerState, absent_as(ContainerState())] = ContainerState()


class _PodStatus(ObservedModel):
    phase: str = ""
    reason: str = ""
    message: str = ""
    pod_ip: str = Field(default="", alias="podIP")
    conditions: Annotated[tuple[ObservedCondition, ...], absent_as(())] = ()
    init_container_statuses: Annotated[tuple[ContainerStatus, ...], absent_as(())] = ()
    container_statuses: Annotated[tuple[ContainerStatus, ...], absent_as(())] = ()


class Revised(ObservedModel):
    """What belongs to one revision."""

    metadata: Meta

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def revision(self) -> str:
        return self.metadata.labels.get(names.LABEL_REVISION, "")


class Group(NamedTuple):
    """One group of a LeaderWorkerSet."""

    workload: str
    """The set's name."""
    number: int
    """From 0; the last one goes first."""

    @property
    def leader(self) -> str:
        """What its leader is called."""
        return f"{self.workload}-{self.number}"


class ObservedPod(Revised):
    """One pod of a SpeculativeDeployment."""

    spec: PodSpec = PodSpec()
    status: _PodStatus = _PodStatus()

    @property
    def leads(self) -> bool:
        """Whether it serves requests itself."""
        return self.metadata.labels.get(names.LABEL_ROLE) == names.ROLE_LEADER

    @property
    def group(self) -> Group | None:
        """Which group it belongs to; None: it is a replica by itself."""
        labels = self.metadata.labels
        index = labels.get(LABEL_GROUP_INDEX, "")
        return Group(labels.get(LABEL_GROUP_SET, ""), int(index)) if index.isdecimal() else None

    def belongs_to(self, owner: Meta) -> bool:
        """Whether it was made for this object, and not for another that had its name."""
        return any(each.uid == owner.uid for each in self.metadata.owner_references)

    @property
    def terminating(self) -> bool:
        """On its way out; it holds its GPUs until it is gone."""
        return self.metadata.deletion_timestamp is not None

    def lost(self, now_s: float) -> bool:
        """Whether its node died: it was to be gone long ago, and no kubelet says that it is.

        It stays until its Node object goes. The time that a pod has to end is in its
        `deletionTimestamp` already; a kubelet kills it then.
        """
        to_go = self.metadata.deletion_timestamp
        return to_go is not None and now_s - to_go.timestamp() > _LOST_S

    @property
    def made_at_s(self) -> float | None:
        """When it was created (Unix seconds)."""
        made = self.metadata.creation_timestamp
        return None if made is None else made.timestamp()

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
        """Unix seconds; None: not ready, or not known."""
        return self._readiness_since_s if self.ready else None

    @property
    def unready_since_s(self) -> float | None:
        """Unix seconds; None: ready, or not known."""
        return None if self.ready else self._readiness_since_s

    @property
    def _readiness_since_s(self) -> float | None:
        condition = self.condition("Ready")
        since = None if condition is None else condition.last_transition_time
        return None if since is None else since.timestamp()

    @property
    def engine_ended_at_s(self) -> float | None:
        """When its engine ended last (Unix seconds); None: never, or it is not known."""
        ends = (
            each.state.terminated or each.last_state.terminated
            for each in self.status.container_statuses
            if each.name == names.ENGINE_CONTAINER
        )
        found = (each.finished_at for each in ends if each is not None)
        return max((at.timestamp() for at in found if at is not None), default=None)

    @property
    def engine_restarts(self) -> int:
        """Restarts of the container that serves; sidecars come and go without it."""
        return sum(
            each.restart_count
            for each in self.status.container_statuses
            if each.name == names.ENGINE_CONTAINER
        )

    @property
    def init_restarts(self) -> int:
        """Restarts of what has to end before the engine can start."""
        sidecars = {each.name for each in self.spec.init_containers if each.is_sidecar}
        return sum(
            each.restart_count
            for each in self.status.init_container_statuses
            if each.name not in sidecars
        )

    def condition(self, kind: str) -> ObservedCondition | None:
        return next((each for each in self.status.conditions if each.type == kind), None)

    @property
    def unscheduled(self) -> ObservedCondition | None:
        """What the scheduler says, which has looked for a node and found none; None: it has not."""
        found = self.condition("PodScheduled")
        return None if found is None or found.status != "False" or self.terminating else found


class PodTemplate(ObservedModel):
    spec: PodSpec = PodSpec()
