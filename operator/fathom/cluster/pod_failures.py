"""What is wrong with a pod, as a reason and a sentence; of one that waits, why no node takes it.

The scheduler says how many nodes fail at what ("3 node(s) didn't match Pod's node affinity"), and
not what they have instead, which is what has to be known to mend it.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from fathom.api import names
from fathom.api.accelerators import Vendor
from fathom.api.conditions import Reason
from fathom.cluster.kinds import Kind
from fathom.cluster.observed import ObservedNode, ObservedWorkload
from fathom.cluster.observed_pods import (
    ContainerStatus,
    ObservedPod,
    ObservedToleration,
    PodSpec,
    Taint,
)
from fathom.engine.replica_layout import EVERY_ADDRESS, EVERY_IPV4, HOST_FLAG
from fathom.model_refs import STORED_DRAFTS
from fathom.text import counted, shortened

_HARD: Final = frozenset({"NoSchedule", "NoExecute"})
_MOST_NAMED: Final = 4
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
_ERROR: Final = re.compile(r"\b(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Interrupt): ")
_ELSEWHERE: Final = "See root cause above"
_LONGEST_MESSAGE: Final = 480
_SHORTEST_CRASH: Final = 200
_GIVEN: Final = re.compile(
    r"\s*\[type=\w+, input_value=.*?, input_type=[\w.]+\]|\s*For further information visit \S+",
    re.DOTALL,
)
"""What pydantic adds to an error: hundreds of characters that say nothing of the cause."""
_NOT_REPEATED: Final = (
    "see its log. That is not repeated here, as it may quote the draft's config.json, which a "
    "trainer wrote"
)
_RECENT_S: Final = 600.0
"""Age of a failed pod that tells of the present."""


def why_no_node(spec: PodSpec, nodes: Sequence[ObservedNode]) -> str:
    """The first thing that no node has, in a sentence; empty: labels, taints and sizes would do.

    Affinity counts as far as `PodSpec.asked_labels` reads it.

    Args:
        spec: the pod's.
        nodes: all of the cluster; none: they are not known.
    """
    if not nodes:
        return ""
    asked = spec.asked_labels
    alike = [node for node in nodes if _carries(node, asked)]
    if not alike:
        return _no_label(asked, nodes, spec.vendor)
    open_ = [node for node in alike if not _repelled(node, spec.tolerations)]
    if not open_:
        return _no_toleration(spec, alike)
    largest = max(node.gpus(spec.vendor) for node in open_)
    if largest < spec.gpus:
        return _no_size(spec, largest, len(open_))
    return ""


def _carries(node: ObservedNode, asked: Mapping[str, frozenset[str]]) -> bool:
    return all(node.metadata.labels.get(key) in values for key, values in asked.items())


def _no_label(
    asked: Mapping[str, frozenset[str]], nodes: Sequence[ObservedNode], vendor: Vendor
) -> str:
    # The accelerator first: it is what most often is another one.
    ordered = sorted(asked.items(), key=lambda label: label[0] != vendor.product_label)
    for key, values in ordered:
        if not any(_carries(node, {key: values}) for node in nodes):
            return _no_single_label(key, _any_of(values), nodes, vendor)
    wanted = " and ".join(f"{key}={_any_of(values)}" for key, values in ordered)
    return f"no node carries {wanted} at once: correct nodePool.nodeSelector."


def _any_of(values: Iterable[str]) -> str:
    return " or ".join(sorted(values))


def _no_single_label(key: str, value: str, nodes: Sequence[ObservedNode], vendor: Vendor) -> str:
    product = key == vendor.product_label
    found = Counter(node.metadata.labels.get(key, "") for node in nodes)
    if set(found) == {""}:
        advice = (
            f"install {vendor.labelled_by}, which sets it, or set nodePool.products: []."
            if product
            else "correct nodePool.nodeSelector."
        )
        return f"of {counted(len(nodes), 'node')} none carries {key}: {advice}"
    others = _named(
        (f"{count} {'carries' if count == 1 else 'carry'} {each or 'none'}", count)
        for each, count in found.items()
    )
    field = "accelerator or nodePool.products" if product else "nodeSelector"
    return f"0 nodes carry {key}={value}; {others}: correct nodePool.{field}, or add such nodes."


def _repelled(node: ObservedNode, tolerations: Sequence[ObservedToleration]) -> Taint | None:
    """The first of a node's taints that keeps the pod away."""
    hard = (taint for taint in node.spec.taints if taint.effect in _HARD)
    return next((t for t in hard if not any(each.tolerates(t) for each in tolerations)), None)


def _no_toleration(spec: PodSpec, nodes: Sequence[ObservedNode]) -> str:
    taints = (_repelled(node, spec.tolerations) for node in nodes)
    found = Counter(str(taint) for taint in taints)
    listed = _named((f"{taint} on {count}", count) for taint, count in found.items())
    some = "the node that matches repels" if len(nodes) == 1 else f"all {len(nodes)} nodes repel"
    return (
        f"{some} the pod by taints: {listed}. Add what is meant for such pods to "
        "nodePool.tolerations; node.kubernetes.io/ taints mark cordoned or failing nodes."
    )


def _no_size(spec: PodSpec, largest: int, nodes: int) -> str:
    have = f"the largest of {nodes} nodes that match has {largest}" if nodes > 1 else (
        f"the node that matches has {largest}"
    )  # fmt: skip
    advice = (
        f"check {spec.vendor.name}'s device plugin there."
        if not largest
        else "lower engine.tensorParallelSize × pipelineParallelSize, or correct nodePool."
    )
    return f"a replica needs {spec.gpus} {spec.vendor.resource}, and {have}: {advice}"


def _named(kinds: Iterable[tuple[str, int]]) -> str:
    """The most frequent ones, and how many kinds more there are."""
    ordered = [text for text, _ in sorted(kinds, key=lambda each: (-each[1], each[0]))]
    left = len(ordered) - _MOST_NAMED
    more = f" and {counted(left, 'more kind')}" if left > 0 else ""
    return ", ".join(ordered[:_MOST_NAMED]) + more


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
    restarts = sum(status.restart_count for status in _restarted(pod))
    model, trained = _model(pod), _is_trained(pod)
    found = (
        _trouble_with_container(pod.name, status, restarts=restarts, model=model, trained=trained)
        for status in waited_for
    )
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


def _model(pod: ObservedPod) -> str:
    """What its engine serves; empty: its arguments do not begin with a model."""
    ours = (each.args for each in pod.spec.containers if each.name == names.ENGINE_CONTAINER)
    first = next((args[0] for args in ours if args), "")
    return "" if first.startswith("-") else first


def _is_trained(pod: ObservedPod) -> bool:
    """Whether it loads a draft that a trainer left: an engine's error quotes its config.json."""
    return any(f"{STORED_DRAFTS}/" in arg for each in pod.spec.containers for arg in each.args)


def _restarted(pod: ObservedPod) -> Iterator[ContainerStatus]:
    """Whose restarts kubectl adds up: containers, and init containers that run on."""
    sidecars = {each.name for each in pod.spec.init_containers if each.is_sidecar}
    yield from pod.status.container_statuses
    for status in pod.status.init_container_statuses:
        if status.name in sidecars:
            yield status


def _crash(said: str, longest: int) -> str:
    """What a log's end has of the error itself: from its last `SomeError:` on, its beginning.

    That of vLLM's API server refers to one above it, which its engine left.
    """
    found = [each for each in _ERROR.finditer(said) if _ELSEWHERE not in _line(said, each)]
    if not found:
        return said
    error = " ".join(_GIVEN.sub("", said[found[-1].start() :]).split())
    return shortened(error, longest, keeps_end=False)


def _line(text: str, at: re.Match[str]) -> str:
    return text[at.start() :].split("\n", 1)[0]


def _trouble_with_container(
    pod: str, status: ContainerStatus, *, restarts: int, model: str, trained: bool
) -> Trouble | None:
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
    times = f" ({counted(restarts, 'restart')} of the pod)" if restarts else ""
    ending = f" exited with code {ended.exit_code}{times}: "
    named = f" with {model}"
    room = max(_SHORTEST_CRASH, _LONGEST_MESSAGE - len(where + named + ending) - 1)
    left = _NOT_REPEATED if trained else _crash(ended.message.strip(), room)
    said = left or ended.reason or "it left no message"
    whose = "" if status.name != names.ENGINE_CONTAINER or model in said else named
    return _trouble(Reason.POD_FAILING, f"{where}{whose}{ending}{said}")


def _trouble(reason: Reason, message: str) -> Trouble:
    flat = shortened(" ".join(message.split()), _LONGEST_MESSAGE)
    return Trouble(reason, flat if flat.endswith(".") else f"{flat}.")
