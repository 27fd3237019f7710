"""What is wrong with a pod, as a reason and a sentence."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from fathom.api import names
from fathom.api.conditions import Reason
from fathom.core.cluster.kinds import Kind
from fathom.core.cluster.observed import ObservedNode, ObservedWorkload
from fathom.core.cluster.observed_pods import ContainerStatus, ObservedPod
from fathom.core.cluster.placement import why_no_node
from fathom.core.counted import counted
from fathom.core.shortened import shortened
from fathom.engine.host import EVERY_ADDRESS, EVERY_IPV4, HOST_FLAG

_IMAGE_REASONS: Final = frozenset(
    {
        "ErrImagePull",
        "ImagePullBackOff",
        "InvalidImageName",
        "ErrImageNeverPull",
        "ImageInspectError",
        "RegistryUnavailable",
    }
)
_CONFIG_REASONS: Final = frozenset(
    {"CreateContainerConfigError", "CreateContainerError", "RunContainerError"}
)
_LONGEST_MESSAGE: Final = 400
_RECENT_S: Final = 600.0
"""Age of a failed pod that tells of the present."""


@dataclass(frozen=True, slots=True)
class Trouble:
    reason: Reason
    message: str


def trouble_with_pod(pod: ObservedPod, nodes: Sequence[ObservedNode] = ()) -> Trouble | None:
    """Why this pod does not serve, if it is more than not there yet.

    Args:
        pod: in question.
        nodes: the cluster's, to say what they have instead of what it needs; none: not known.
    """
    if pod.terminating or pod.ready:
        return None
    if pod.status.phase == "Failed":
        said = pod.status.message or pod.status.reason or "it says no more"
        return _trouble(Reason.POD_FAILING, f"pod {pod.name} failed: {said}")
    if (unscheduled := pod.unscheduled) is not None:
        said = why_no_node(pod.spec, nodes) or unscheduled.message or unscheduled.reason
        return _trouble(Reason.POD_UNSCHEDULABLE, f"pod {pod.name} finds no node: {said}")
    statuses = (*pod.status.init_container_statuses, *pod.status.container_statuses)
    # What is ready is not what it waits for, whatever became of it before.
    waited_for = [status for status in statuses if not status.ready]
    waited_for.sort(key=lambda status: status.name != names.ENGINE_CONTAINER)
    found = (_trouble_with_container(pod.name, status) for status in waited_for)
    return next((each for each in found if each is not None), None) or _unreachable(pod)


def trouble_with_failed(pods: Iterable[ObservedPod], now_s: float) -> Trouble | None:
    """Why pods that came a short while ago have failed for good: most often a node refuses them.

    A Deployment makes others at once, so there may be many.

    Args:
        pods: in question, of any phase.
        now_s: Unix seconds.
    """
    failed = [
        (made, pod)
        for pod in pods
        if pod.status.phase == "Failed"
        and (made := pod.made_at_s) is not None
        and now_s - made < _RECENT_S
    ]
    if not failed:
        return None
    _, newest = max(failed, key=lambda each: (each[0], each[1].name))
    parts = (newest.status.reason, newest.status.message)
    said = ": ".join(part for part in parts if part) or "it says no more"
    others = len(failed) - 1
    more = f" ({counted(others, 'more pod')} failed in the last ten minutes)" if others else ""
    return _trouble(Reason.POD_FAILING, f"pod {newest.name} failed{more}: {said}")


def _unreachable(pod: ObservedPod) -> Trouble | None:
    """That nobody reaches it at its first address, where a kubelet asks.

    An engine that listens at IPv4 is not reached at IPv6; a container beside it may listen for it.
    """
    alone = len(pod.spec.containers) == 1 and not any(
        each.is_sidecar for each in pod.spec.init_containers
    )
    if not alone or ":" not in pod.status.pod_ip or pod.spec.host != EVERY_IPV4:
        return None
    return _trouble(
        Reason.POD_FAILING,
        f"pod {pod.name} has the address {pod.status.pod_ip}, and its engine listens at IPv4 "
        f'addresses alone: add "{HOST_FLAG}", "{EVERY_ADDRESS}" to spec.engine.args',
    )


def trouble_with_workload(workload: ObservedWorkload, refused: str = "") -> Trouble | None:
    """Why its pods cannot even be created: a quota, a policy, a webhook.

    Args:
        workload: in question.
        refused: what the cluster says of pods that it refuses, of a kind that has no condition for
            that; empty: nothing.
    """
    conditions = (
        each.message
        for each in workload.conditions
        if each.type == "ReplicaFailure" and each.status == "True"
    )
    said = next(conditions, refused)
    return pods_refused(workload.kind, workload.name, said) if said else None


def pods_refused(kind: Kind, name: str, said: str) -> Trouble:
    """That what makes pods may make none.

    Args:
        kind: of what makes them.
        name: of it.
        said: why, in the cluster's words.
    """
    return _trouble(Reason.CHILD_REFUSED, f"the cluster refuses pods of {kind.kind} {name}: {said}")


def _trouble_with_container(pod: str, status: ContainerStatus) -> Trouble | None:
    waiting = status.state.waiting
    where = f"container {status.name} of pod {pod}"
    if waiting is not None and waiting.reason in _IMAGE_REASONS:
        said = waiting.message or waiting.reason
        return _trouble(Reason.IMAGE_UNAVAILABLE, f"{where} cannot get {status.image}: {said}")
    if waiting is not None and waiting.reason in _CONFIG_REASONS:
        said = waiting.message or waiting.reason
        return _trouble(Reason.POD_FAILING, f"{where} cannot start: {said}")
    ended = status.state.terminated or status.last_state.terminated
    if ended is None or (ended.exit_code == 0 and status.restart_count == 0):
        return None
    said = ended.message.strip() or ended.reason or "it left no message"
    restarts = counted(status.restart_count, "restart")
    times = f"{restarts} so far" if status.restart_count else "no restart yet"
    return _trouble(
        Reason.POD_FAILING, f"{where} exited with code {ended.exit_code} ({times}): {said}"
    )


def _trouble(reason: Reason, message: str) -> Trouble:
    flat = shortened(" ".join(message.split()), _LONGEST_MESSAGE)
    return Trouble(reason, flat if flat.endswith(".") else f"{flat}.")
