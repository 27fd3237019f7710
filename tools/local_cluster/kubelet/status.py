"""What the API server is told about a pod. Pure: states and the time in, a document out."""

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass, field

from local_cluster.kube import Object
from local_cluster.kubelet.models import Container, Pod
from local_cluster.kubelet.problem import CONTAINER_CREATING, POD_INITIALIZING
from local_cluster.kubelet.sources import PodAddresses


@dataclass(frozen=True, slots=True)
class ContainerStateWaiting:
    reason: str
    message: str = ""

    def render(self) -> Object:
        message = {"message": self.message} if self.message else {}
        return {"waiting": {"reason": self.reason, **message}}


@dataclass(frozen=True, slots=True)
class ContainerStateRunning:
    started_at: dt.datetime

    def render(self) -> Object:
        return {"running": {"startedAt": timestamp(self.started_at)}}


@dataclass(frozen=True, slots=True)
class ContainerStateTerminated:
    exit_code: int
    started_at: dt.datetime
    finished_at: dt.datetime
    message: str = ""

    def render(self) -> Object:
        state = {
            "exitCode": self.exit_code,
            "reason": "Completed" if self.exit_code == 0 else "Error",
            "startedAt": timestamp(self.started_at),
            "finishedAt": timestamp(self.finished_at),
        }
        return {"terminated": state | ({"message": self.message} if self.message else {})}


ContainerState = ContainerStateWaiting | ContainerStateRunning | ContainerStateTerminated


@dataclass(slots=True)
class ContainerRecord:
    """What is known of one container; its worker keeps it up to date."""

    container: Container
    state: ContainerState
    last_state: ContainerStateTerminated | None = None
    restart_count: int = 0
    ready: bool = False
    started: bool = False
    container_id: str = ""

    def render(self) -> Object:
        document: Object = {
            "name": self.container.name,
            "image": self.container.image,
            "imageID": self.container.image if self.container_id else "",
            "containerID": self.container_id,
            "restartCount": self.restart_count,
            "ready": self.ready,
            "started": self.started,
            "state": self.state.render(),
            "lastState": {} if self.last_state is None else self.last_state.render(),
        }
        return document


@dataclass(slots=True)
class PodRecord:
    """What is known of one pod."""

    pod: Pod
    addresses: PodAddresses | None
    start_time: str
    init_containers: list[ContainerRecord]
    containers: list[ContainerRecord]
    transitions: dict[str, tuple[str, str]] = field(default_factory=dict)
    """By condition type: its status, and since when."""


def new_record(pod: Pod, now: dt.datetime) -> PodRecord:
    """A pod none of whose containers has started; restarts before a kubelet's own still count."""
    waiting = ContainerStateWaiting(
        POD_INITIALIZING if pod.spec.init_containers else CONTAINER_CREATING
    )
    statuses = (*pod.status.container_statuses, *pod.status.init_container_statuses)
    counts = {status.name: status.restart_count for status in statuses}

    def fresh(container: Container, state: ContainerStateWaiting) -> ContainerRecord:
        return ContainerRecord(container, state, restart_count=counts.get(container.name, 0))

    return PodRecord(
        pod=pod,
        addresses=None,
        start_time=pod.status.start_time or timestamp(now),
        transitions={
            condition.type: (condition.status, condition.last_transition_time or timestamp(now))
            for condition in pod.status.conditions
        },
        init_containers=[
            fresh(c, ContainerStateWaiting(POD_INITIALIZING)) for c in pod.spec.init_containers
        ],
        containers=[fresh(container, waiting) for container in pod.spec.containers],
    )


def render_status(record: PodRecord, now: dt.datetime) -> Object:
    """The pod's `status`, for a merge patch: lists replace what was there."""
    status: Object = {
        "phase": phase(record),
        "startTime": record.start_time,
        "conditions": _conditions(record, timestamp(now)),
        "containerStatuses": [container.render() for container in record.containers],
    }
    if record.init_containers:
        status["initContainerStatuses"] = [item.render() for item in record.init_containers]
    if record.addresses is not None:
        status["podIP"] = record.addresses.pod_ip
        status["podIPs"] = [{"ip": record.addresses.pod_ip}]
        status["hostIP"] = record.addresses.host_ip
    return status


def phase(record: PodRecord) -> str:
    """Pending, Running, Succeeded or Failed, as Kubernetes defines them."""
    policy = record.pod.spec.restart_policy
    if policy == "Never" and any(_failed(item.state) for item in record.init_containers):
        return "Failed"
    states = [item.state for item in record.containers]
    if policy != "Always" and all(isinstance(state, ContainerStateTerminated) for state in states):
        if not any(_failed(state) for state in states):
            return "Succeeded"
        if policy == "Never":
            return "Failed"
    if any(_has_run(item) for item in record.containers):
        return "Running"
    return "Pending"


def _failed(state: ContainerState) -> bool:
    return isinstance(state, ContainerStateTerminated) and state.exit_code != 0


def _has_run(item: ContainerRecord) -> bool:
    return not isinstance(item.state, ContainerStateWaiting) or item.last_state is not None


def _conditions(record: PodRecord, now: str) -> list[Object]:
    initialized = all(
        isinstance(item.state, ContainerStateTerminated) and item.state.exit_code == 0
        for item in record.init_containers
    )
    unready = [item.container.name for item in record.containers if not item.ready]
    finished = phase(record) == "Succeeded"
    waiting = f"containers with unready status: [{' '.join(unready)}]" if unready else ""
    reason = "PodCompleted" if finished else "ContainersNotReady"
    return [
        _condition(
            record, now, "Initialized", holds=initialized, reason="ContainersNotInitialized"
        ),
        _condition(record, now, "Ready", holds=not unready, reason=reason, message=waiting),
        _condition(
            record, now, "ContainersReady", holds=not unready, reason=reason, message=waiting
        ),
        _condition(record, now, "PodScheduled", holds=True),
    ]


def _condition(
    record: PodRecord, now: str, kind: str, *, holds: bool, reason: str = "", message: str = ""
) -> Object:
    status = "True" if holds else "False"
    previous = record.transitions.get(kind)
    if previous is None or previous[0] != status:
        record.transitions[kind] = (status, now)
    explained = {} if holds else {"reason": reason, "message": message}
    return {
        "type": kind,
        "status": status,
        "lastTransitionTime": record.transitions[kind][1],
        "lastProbeTime": None,
        **explained,
    }


def failed_containers(records: Sequence[ContainerRecord]) -> bool:
    """Whether any ended with an error."""
    return any(_failed(record.state) for record in records)


def timestamp(at: dt.datetime) -> str:
    """As the API writes times: UTC, whole seconds."""
    return at.astimezone(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
