"""Which pods make up which replica: one pod, or a leader and its workers. Pure."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from fathom.core.cluster.observed_pods import Group, ObservedPod


@dataclass(frozen=True, slots=True)
class ReplicaPods:
    """One replica, as far as it exists."""

    revision: str
    group: Group | None
    """None: it is one pod."""
    leader: ObservedPod | None
    """None: it is gone, and workers of its are still there."""

    @property
    def ready(self) -> bool:
        return self.leader is not None and self.leader.ready

    @property
    def terminating(self) -> bool:
        """On its way out; it holds its GPUs until its last pod is gone."""
        return self.leader is None or self.leader.terminating


def replicas_in(pods: Iterable[ObservedPod]) -> tuple[ReplicaPods, ...]:
    """The replicas that these pods of engines are; a group whose worker died comes back."""
    groups: defaultdict[tuple[str, Group], list[ObservedPod]] = defaultdict(list)
    found = []
    for pod in pods:
        if pod.group is not None:
            groups[pod.revision, pod.group].append(pod)
        else:
            found.append(ReplicaPods(pod.revision, None, pod))
    for (revision, group), members in groups.items():
        leader = next((pod for pod in members if pod.leads), None)
        found.append(ReplicaPods(revision, group, leader))
    return tuple(found)
