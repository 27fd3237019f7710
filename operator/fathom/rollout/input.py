"""What a rollout's next step depends on, gathered once and frozen."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from fathom.api.choices import Compares
from fathom.cluster.missing_pods import Unplaced
from fathom.cluster.observed import ObservedWorkload
from fathom.cluster.observed_pods import ObservedPod
from fathom.cluster.pod_failures import Trouble, trouble_with_workload
from fathom.engine.depth import DepthDocument
from fathom.measurement.counters import PodCounters
from fathom.measurement.deltas import PodDelta

SCHEDULING_S = 600.0
"""For finding a node and pulling the image, before the engine's own start. The Deployment's
`progressDeadlineSeconds` allows the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutSettings:
    """What the spec says of rollouts."""

    replicas: int
    max_unavailable: int
    max_surge: int
    bake_s: float
    startup_s: float
    """That an engine may take to become ready."""
    drain_s: float
    paused: bool
    waits: bool = False
    """Whether a canary that no node has room for waits, where it could take a replica's place."""
    capacity_s: float = 0.0
    """How long no node may have room for it until then."""

    @property
    def patience_s(self) -> float:
        """How long a canary may take to become ready, its predecessor's drain included."""
        return self.drain_s + self.startup_s + SCHEDULING_S


@dataclass(frozen=True, slots=True)
class CanaryWindow:
    """What both sides counted in the same minute; empty: unreadable."""

    canary: tuple[PodDelta, ...]
    stable: tuple[PodDelta, ...]

    @property
    def is_busy(self) -> bool:
        """Whether anybody was served, as far as is known."""
        return any(each.engine.generation_tokens for each in (*self.canary, *self.stable))


@dataclass(frozen=True, kw_only=True)
class RolloutInput:
    """One pass's view."""

    now_s: float
    revision: str
    """That the spec asks for."""
    settings: RolloutSettings
    workloads: Sequence[ObservedWorkload]
    pods: Sequence[ObservedPod]
    """Leaders, but for those whose node died."""
    counters: Mapping[str, PodCounters]
    document: DepthDocument | None
    document_written_at_s: float
    window: CanaryWindow | None
    """None: none has ended."""
    stable_spec_known: bool
    """Whether the stable revision's spec is known, so that it can be gone back to."""
    live: bool
    """Whether the depth of `revision`'s pods is changed live."""
    specs_known: frozenset[str] = frozenset()
    """Revisions whose spec is known, so that they could be gone back to."""
    refused_pods: Mapping[str, str] = field(default_factory=dict)
    """By LeaderWorkerSet: why pods of its groups are not created, in the cluster's words."""
    unplaced: Mapping[str, Unplaced] = field(default_factory=dict)
    """By revision: why a replica of it has no place."""
    start_s: float | None = None
    """Seconds that a replica took to start, the last one that tells; None: none does."""
    failed_pods: tuple[ObservedPod, ...] = ()
    """Pods of any revision that failed for good."""
    blocked: str = ""
    """Why the operator makes no room for the canary, and what to do; empty: it does."""
    held: str = ""
    """What the revision's pods wait for, in words, before they may be created; empty: nothing."""
    compares: Compares | None = None
    """What `revision` has otherwise, if it is asked for in one replica only, to be compared."""
    draft: str = ""
    """The draft on trial, if that is it."""
    own_depth: bool = False
    """Whether it has a depth of its own, apart from the others'."""
    depth_settled: bool = True
    """Whether a draft on trial has had its own best depth by now."""
    fallen_back: bool = False
    """Whether the spec in force is an earlier one, since the newest cannot be carried out."""
    offered: bool = False
    """Whether a person asked for `revision`, which the spec does not need."""
    why: str = ""
    """The first difference between both revisions' pods."""
    retry: str = ""
    """What the user's annotation says: another value than before asks to try a vetoed revision
    once more."""
    looked_at_s: float | None = None
    """When an operator looked at the canary before (Unix seconds); None: not known."""

    @cached_property
    def others(self) -> tuple[str, ...]:
        """Other revisions that have pods, or ask for some; those that serve most come first."""
        found = {
            each: (self.ready(each), self.asked(each), each)
            for each in {workload.revision for workload in self.workloads} - {self.revision}
            if self.asked(each) or self.of_revision(each)
        }
        return tuple(sorted(found, key=lambda revision: found[revision], reverse=True))

    def of_revision(self, revision: str) -> tuple[ObservedPod, ...]:
        return tuple(pod for pod in self.pods if pod.revision == revision and not pod.terminating)

    def ready(self, revision: str) -> int:
        return sum(pod.ready for pod in self.of_revision(revision))

    def asked(self, revision: str) -> int:
        """Replicas that its workloads ask for; 0: there is none."""
        return sum(each.replicas for each in self.workloads if each.revision == revision)

    def refusal(self, revision: str) -> Trouble | None:
        """Why the cluster creates no pods of it; None: it does, or does not say."""
        own = (each for each in self.workloads if each.revision == revision)
        found = (trouble_with_workload(each, self.refused_pods.get(each.name, "")) for each in own)
        return next((each for each in found if each is not None), None)
