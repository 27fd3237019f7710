"""Pods that groups and fetches lack, and who was to make them. Pure.

LeaderWorkerSet has no condition for pods that the cluster refuses, and neither have a StatefulSet
and a Job: they tell of it in events only. LeaderWorkerSet makes one StatefulSet for the leaders,
called after itself, and one for the workers of each group, called as the group's leader is.
Sources: `pkg/controllers` of github.com/kubernetes-sigs/lws; `recordPodEvent` in Kubernetes'
pkg/controller/statefulset/stateful_pod_control.go, and pkg/controller/controller_utils.go for Jobs.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from fathom.core.cluster.observed import ObservedEvent, ObservedJob, ObservedLeaderWorkerSet
from fathom.core.cluster.observed_pods import Group, ObservedPod

CREATION_FAILED: Final = "FailedCreate"
"""The reason of such events, of all these controllers."""


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
