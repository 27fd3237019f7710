"""Whether a replica lacks a place, and what is known of how long one takes to start. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from fathom.core.cluster.observed import ObservedWorkload
from fathom.core.cluster.observed_pods import ObservedPod
from fathom.core.cluster.pod_trouble import Trouble, trouble_with_pod, trouble_with_workload
from fathom.core.cluster.snapshot import Objects

_QUOTA: Final = "exceeded quota"
"""The API server's words where a ResourceQuota refuses a pod (plugin/pkg/admission/resourcequota in
Kubernetes)."""


@dataclass(frozen=True, slots=True)
class Unplaced:
    """Why a revision has a replica without a place."""

    trouble: Trouble
    since_s: float | None
    """Unix seconds; None: not known."""


def lacks_place(objects: Objects) -> Trouble | None:
    """What keeps a replica from a place that would be there if something else ended; None: nothing.

    A pod that ends frees its place for one that waits.
    """
    waiting = sum(pod.unscheduled is not None for pod in objects.engines)
    ending = sum(pod.terminating and not pod.lost(objects.read_at_s) for pod in objects.engines)
    found = unplaced(objects, with_pods=waiting > ending).values()
    return next((each.trouble for each in found), None)


def unplaced(objects: Objects, *, with_pods: bool = True) -> Mapping[str, Unplaced]:
    """By revision: the first pod that no node has room for, or that a quota refuses.

    Args:
        objects: what the cluster holds.
        with_pods: whether pods that find no node count, or only those that cannot be created.
    """
    engines = objects.engines if with_pods else ()
    found: dict[str, Unplaced] = {}
    for revision in dict.fromkeys(each.revision for each in objects.workloads):
        each = _without_node((pod for pod in engines if pod.revision == revision), objects)
        own = (workload for workload in objects.workloads if workload.revision == revision)
        refused = (_beyond_quota(workload, objects) for workload in own)
        each = each or next((one for one in refused if one is not None), None)
        if each is not None:
            found[revision] = each
    return found


def measured_start_s(pods: Iterable[ObservedPod]) -> float | None:
    """Seconds from being made to being ready, of the pod that was made last; None: none tells."""
    times = [
        (pod.made_at_s, pod.ready_since_s)
        for pod in pods
        if pod.made_at_s is not None and pod.ready_since_s is not None and not pod.engine_restarts
    ]
    if not times:
        return None
    made_at_s, ready_since_s = max(times)
    return max(0.0, ready_since_s - made_at_s)


def _without_node(pods: Iterable[ObservedPod], objects: Objects) -> Unplaced | None:
    for pod in sorted(pods, key=lambda pod: pod.name):
        if (said := pod.unscheduled) is not None:
            trouble = trouble_with_pod(pod, objects.nodes)
            since_s = _seconds(said.last_transition_time)
            since_s = pod.made_at_s if since_s is None else since_s
            return None if trouble is None else Unplaced(trouble, since_s)
    return None


def _beyond_quota(workload: ObservedWorkload, objects: Objects) -> Unplaced | None:
    trouble = trouble_with_workload(workload, objects.refused_pods.get(workload.name, ""))
    if trouble is None or _QUOTA not in trouble.message:
        return None
    failures = (each for each in workload.conditions if each.type == "ReplicaFailure")
    since = next((each.last_transition_time for each in failures), None)
    return Unplaced(trouble, _seconds(since))


def _seconds(at: datetime | None) -> float | None:
    return None if at is None else at.timestamp()
