"""Pods that a replica, a group or a fetch lacks, and who makes them. Pure.

LeaderWorkerSet has no condition for pods that the cluster refuses, and neither have a StatefulSet
and a Job: they tell of it in events only. LeaderWorkerSet makes one StatefulSet for the leaders,
called after itself, and one for the workers of each group, called as the group's leader is.
Sources: `pkg/controllers` of github.com/kubernetes-sigs/lws; `recordPodEvent` in Kubernetes'
pkg/controller/statefulset/stateful_pod_control.go, and pkg/controller/controller_utils.go for Jobs.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from fathom.cluster.observed import (
    ObservedEvent,
    ObservedJob,
    ObservedLeaderWorkerSet,
    ObservedWorkload,
)
from fathom.cluster.observed_pods import Group, ObservedPod
from fathom.cluster.pod_failures import Trouble, trouble_with_pod, trouble_with_workload
from fathom.cluster.snapshot import Objects

CREATION_FAILED: Final = "FailedCreate"
"""The reason of such events, of all these controllers."""
_QUOTA: Final = "exceeded quota"
"""The API server's words where a ResourceQuota refuses a pod (plugin/pkg/admission/resourcequota in
Kubernetes)."""


@dataclass(frozen=True, slots=True)
class PodGap:
    """Pods of one StatefulSet or Job that should be there and are not."""

    owner: str
    """Its name; the StatefulSet of the leaders is called as its LeaderWorkerSet is."""
    since_s: float
    """Unix seconds at which something of it came into being last: what was said before is over."""


def gaps_in(
    sets: Iterable[ObservedLeaderWorkerSet], pods: Iterable[ObservedPod]
) -> Mapping[str, Sequence[PodGap]]:
    """By LeaderWorkerSet, what it lacks: of each revision the first leaders, and the first workers.

    Two for a revision at most: the pods of a thousand groups are refused for one reason.

    Args:
        sets: of one resource.
        pods: of it, of all revisions.
    """
    members: defaultdict[str, defaultdict[int, list[ObservedPod]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for pod in pods:
        if pod.group is not None:
            members[pod.group.workload][pod.group.number].append(pod)
    found: defaultdict[str, list[PodGap]] = defaultdict(list)
    said: set[tuple[str, bool]] = set()
    for each in sorted(sets, key=lambda each: each.name):
        for of_leaders, gap in _gaps(each, members[each.name]):
            if (each.revision, of_leaders) not in said:
                said.add((each.revision, of_leaders))
                found[each.name].append(gap)
    return found


def _gaps(
    group: ObservedLeaderWorkerSet, members: Mapping[int, Sequence[ObservedPod]]
) -> Iterator[tuple[bool, PodGap]]:
    """What one set lacks, and whether that is leaders."""
    leaders = {index: pod for index in members for pod in members[index] if pod.leads}
    if len(leaders) < group.replicas:
        yield True, PodGap(group.name, _newest_s([group, *leaders.values()]))
    for index in sorted(leaders):
        if len(members[index]) < group.size:
            yield False, PodGap(Group(group.name, index).leader, _newest_s(members[index]))
            return


def gaps_of(job: ObservedJob, pods: Iterable[ObservedPod]) -> tuple[PodGap, ...]:
    """The pod that a Job lacks which is under way; one that goes, or has failed, is none.

    Args:
        job: in question.
        pods: of its resource.
    """
    own = [pod for pod in pods if pod.belongs_to(job.metadata)]
    if job.complete or job.failed is not None:
        return ()
    if any(not pod.terminating and not pod.finished for pod in own):
        return ()
    return (PodGap(job.name, _newest_s([job, *own])),)


def refusal(gap: PodGap, events: Iterable[ObservedEvent]) -> str:
    """Why the pods are not created, in the cluster's words; empty: nothing was said of it.

    Args:
        gap: in question.
        events: about its owner.
    """
    told = [each for each in events if each.at_s >= gap.since_s and each.message]
    # Of several that were told at once, always the same one: they differ in the pod's name.
    return min(told, key=lambda each: (-each.at_s, each.message)).message if told else ""


def _newest_s(found: Sequence[ObservedLeaderWorkerSet | ObservedJob | ObservedPod]) -> float:
    made = (each.metadata.creation_timestamp for each in found)
    return max((at.timestamp() for at in made if at is not None), default=0.0)


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
