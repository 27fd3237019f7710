"""Pods that groups and fetches lack, and who was to make them. Pure.

LeaderWorkerSet has no condition for pods that the cluster refuses, and neither have a StatefulSet
and a Job: they tell of it in events only. LeaderWorkerSet makes one StatefulSet for the leaders,
called after itself, and one for the workers of each group, called `<name>-<index>`.
Sources: `pkg/controllers` of github.com/kubernetes-sigs/lws; `recordPodEvent` in Kubernetes'
pkg/controller/statefulset/stateful_pod_control.go, and pkg/controller/controller_utils.go for Jobs.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from fathom.core.cluster.observed import ObservedEvent, ObservedJob, ObservedLeaderWorkerSet
from fathom.core.cluster.observed_pods import ObservedPod

CREATION_FAILED: Final = "FailedCreate"
"""The reason of such events, of all these controllers."""


@dataclass(frozen=True, slots=True)
class PodGap:
    """Pods of one StatefulSet or Job that should be there and are not."""

    owner: str
    """Its name; the StatefulSet of the leaders is called as its LeaderWorkerSet is."""
    since_s: float
    """Unix seconds at which something of it came into being last: what was said before is over."""


def gaps_in(group: ObservedLeaderWorkerSet, pods: Iterable[ObservedPod]) -> tuple[PodGap, ...]:
    """What a LeaderWorkerSet lacks: leaders, and workers of the first group that lacks any.

    Two at most: the workers of a thousand groups are refused for one reason.

    Args:
        group: in question.
        pods: of its resource, of all revisions.
    """
    own = [pod for pod in pods if pod.revision == group.revision and pod.group_index is not None]
    leaders = sorted((pod for pod in own if pod.leads), key=lambda pod: pod.group_index or 0)
    found = []
    if len(leaders) < group.replicas:
        found.append(PodGap(group.name, _newest_s([group, *leaders])))
    for leader in leaders:
        members = [pod for pod in own if pod.group_index == leader.group_index]
        if len(members) < group.size:
            found.append(PodGap(f"{group.name}-{leader.group_index}", _newest_s(members)))
            break
    return tuple(found)


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
