"""Which depths recorded engines ran: a recording holds metrics, and no depth document. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from fathom.core.measurement import PodDelta
from fathom.tuning.buckets import Depths, buckets

LEAST_STEPS: Final = 3.0
"""With fewer steps in a bucket, a pod has no say about it."""


@dataclass(frozen=True, slots=True)
class RecordedDepths:
    """The schedule that the fleet ran, and the pods that ran something else."""

    depths: Depths
    """Per bucket."""
    deviating: Mapping[str, int]
    """Pods that ran another depth than the fleet, and where most of their steps did so, which: a
    probe, a canary or a pin."""

    @classmethod
    def at_start(cls, tokens: int, max_batch: int) -> "RecordedDepths":
        """Before anything was seen: the user's own depth."""
        return cls(dict.fromkeys(buckets(max_batch), tokens), {})

    def updated(self, deltas: Iterable[PodDelta]) -> "RecordedDepths":
        """After one more window.

        In each bucket every pod speaks for the depth of most of its steps, and most pods decide.
        With as many for another depth as for the one before, that one stays: so on two pods a probe
        of one is a probe. A bucket that nobody ran in keeps its depth.
        """
        own = {each.pod: _steps_by_bucket(each) for each in deltas}
        depths = {
            bucket: _decided(before, [steps[bucket] for steps in own.values() if bucket in steps])
            for bucket, before in self.depths.items()
        }
        found = {pod: _deviation(steps, depths) for pod, steps in own.items()}
        deviating = {pod: depth for pod, depth in found.items() if depth is not None}
        return RecordedDepths(depths, deviating)


def _steps_by_bucket(delta: PodDelta) -> dict[int, dict[int, float]]:
    """Steps per bucket and depth, where there are enough."""
    steps: defaultdict[int, defaultdict[int, float]] = defaultdict(lambda: defaultdict(float))
    for cell, counts in delta.cells.items():
        steps[cell.batch_le][cell.depth] += counts.steps
    return {
        bucket: dict(by_depth)
        for bucket, by_depth in steps.items()
        if sum(by_depth.values()) >= LEAST_STEPS
    }


def _decided(before: int, pods: list[dict[int, float]]) -> int:
    votes: defaultdict[int, int] = defaultdict(int)
    steps: defaultdict[int, float] = defaultdict(float)
    for by_depth in pods:
        votes[max(by_depth, key=by_depth.__getitem__)] += 1
        for depth, count in by_depth.items():
            steps[depth] += count
    return max(
        votes, key=lambda depth: (votes[depth], depth == before, steps[depth]), default=before
    )


def _deviation(by_bucket: Mapping[int, Mapping[int, float]], depths: Depths) -> int | None:
    """The depth of most of a pod's steps that are not the fleet's; None: it ran as the fleet."""
    other: defaultdict[int, float] = defaultdict(float)
    for bucket, by_depth in by_bucket.items():
        depth = max(by_depth, key=by_depth.__getitem__)
        if depth != depths.get(bucket, depth):
            other[depth] += by_depth[depth]
    return max(other, key=other.__getitem__, default=None)
