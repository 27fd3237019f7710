"""What each revision has, replica by replica, and which of its workloads gives or gets one. Pure.

A Deployment holds all replicas of a revision, and its controller takes those first that do not
serve. A LeaderWorkerSet takes its last groups first, whether they serve or not, so each holds one
replica only, and the operator chooses which one gives way. One that holds several was made by an
earlier Fathom: it stays as it is, and does not grow.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

from fathom.cluster.kinds import DEPLOYMENT
from fathom.cluster.observed import ObservedWorkload
from fathom.cluster.observed_pods import Group, ObservedPod
from fathom.cluster.snapshot import Objects
from fathom.rollout.replicas import Fleet


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


class Place(NamedTuple):
    """One replica that a workload asks for, and can have."""

    group: Group
    """Where it is; a Deployment has no groups, and only how many there are counts."""
    serves: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RevisionFleet:
    """The workloads of one revision, and what they have."""

    fleet: Fleet
    workloads: tuple[ObservedWorkload, ...]
    places: tuple[Place, ...]
    """The place of each replica in `fleet`, in that order."""
    empty: tuple[str, ...]
    """LeaderWorkerSets that ask for nothing and have no pods."""

    def shared(self, replicas: int) -> tuple[Mapping[str, int], int]:
        """What each workload asks for, of so many replicas, and how many sets are lacking."""
        asked = {each.name: 0 for each in self.workloads}
        for (workload, number), _ in self.places[:replicas]:
            asked[workload] = max(asked[workload], number + 1)
        missing = max(0, replicas - len(self.places))
        if (holds_all := _deployment(self.workloads)) is not None:
            asked[holds_all] += missing
            return asked, 0
        raised = self.empty[:missing]
        return asked | dict.fromkeys(raised, 1), missing - len(raised)


def fleets_of(objects: Objects, stable: str = "") -> tuple[RevisionFleet, ...]:
    """What each revision with a workload has. Nobody waits for pods whose node died.

    Args:
        objects: what the cluster holds.
        stable: the revision that a rollout would go back to; empty: there is none.
    """
    engines = objects.engines
    replicas = replicas_in(pod for pod in engines if not pod.lost(objects.read_at_s))
    serving = Counter(_home(each) for each in replicas if each.ready)
    lost = {_home(pod) for pod in engines if pod.lost(objects.read_at_s)} - serving.keys()
    occupied = sets_with_pods(objects)

    def fleet_of(revision: str) -> RevisionFleet:
        found = (each for each in objects.workloads if each.revision == revision)
        workloads = tuple(sorted(found, key=lambda each: each.name))
        stacks = [_places(each, serving, lost) for each in workloads]
        places = _in_order(stacks)
        held = _held(workloads, places, [each for each in replicas if each.revision == revision])
        serves = tuple(each.serves for each in places)
        idle = (each.name for each in workloads if not each.replicas)
        return RevisionFleet(
            fleet=Fleet(revision=revision, serves=serves, held=held, stable=revision == stable),
            workloads=workloads,
            places=places,
            empty=tuple(name for name in idle if name not in occupied),
        )

    return tuple(map(fleet_of, dict.fromkeys(each.revision for each in objects.workloads)))


def sets_with_pods(objects: Objects) -> frozenset[str]:
    """Names of LeaderWorkerSets that have pods, whatever became of these."""
    return frozenset(pod.group.workload for pod in objects.pods if pod.group is not None)


def used_names(objects: Objects) -> Collection[str]:
    """Names that no further workload can have."""
    return sets_with_pods(objects) | {each.name for each in objects.workloads}


def _home(replica: ReplicaPods | ObservedPod) -> Group | str:
    """What it is one of: its group, or the revision whose Deployment holds it."""
    return replica.group or replica.revision


def _deployment(workloads: Sequence[ObservedWorkload]) -> str | None:
    return next((each.name for each in workloads if each.kind == DEPLOYMENT), None)


def _places(
    workload: ObservedWorkload,
    serving: Mapping[Group | str, int],
    lost: Collection[Group | str],
) -> list[Place]:
    """The places of one workload. The last one is given up first.

    Without groups that do not come back: a StatefulSet replaces no pod that a dead node holds.
    """
    groups = (Group(workload.name, number) for number in range(workload.replicas))
    if workload.kind == DEPLOYMENT:
        ready = serving.get(workload.revision, 0)
        return [Place(each, each.number < ready) for each in groups]
    return [Place(each, each in serving) for each in groups if each not in lost]


def _in_order(stacks: Sequence[Sequence[Place]]) -> tuple[Place, ...]:
    """All places, the one that goes first last: what serves nobody, as far as it can go alone."""
    lasting = [
        max((at for at, each in enumerate(stack, 1) if each.serves), default=0) for stack in stacks
    ]
    cut = list(zip(stacks, lasting, strict=True))
    return tuple(chain.from_iterable((*(s[:at] for s, at in cut), *(s[at:] for s, at in cut))))


def _held(
    workloads: Sequence[ObservedWorkload],
    places: Sequence[Place],
    replicas: Sequence[ReplicaPods],
) -> int:
    """Replicas' worth of GPUs, by workload: what one has too many fills no other's place."""
    holds_all = _deployment(workloads) or ""
    asked = Counter(each.group.workload for each in places)
    standing = Counter(
        each.group.workload if each.group else holds_all
        for each in replicas
        if not each.terminating
    )
    return (asked | standing).total() + sum(each.terminating for each in replicas)
