"""What a depth makes once the mix of requests has settled to it.

Survival is that of a mix of requests, and the mix follows the depth: the deeper, the sooner those
with good drafts are gone, and those with bad ones fill the batch. So what drafts show at one depth
promises too much of a deeper one (and of a shallower one too little). What each depth makes once it
is in force is therefore counted apart, and by how much that lies beside what another depth had
promised is remembered for hours, as a *shift*.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from math import inf
from typing import Final

from fathom.measurement.counters import position_at
from fathom.measurement.deltas import PodDelta
from fathom.tuning.estimate.acceptance_length import NO_TRIALS, Trials, decay, trials

_SEVERAL_DEPTHS: Final = -1
"""Stands for the depth of a pod whose batch wanders between depths."""
ONE_DEPTH_SHARE: Final = 0.9
"""Share of a pod's drafts at one depth, from which on the pod was at that depth."""
MOST_DEPTHS: Final = 4
"""Whose settled trials are kept: those with most of them."""
SHIFT_HALF_LIFE_S: Final = 6 * 3600.0
"""In which the precision of a shift halves: what kinds of requests there are changes with the
hour."""
HALF_LIFE_S: Final = 300.0
"""Halves what was counted: answers grow longer or shorter with the traffic, within minutes."""
LEAST_REQUESTS: Final = 20.0
"""Finished requests before it is reported."""


@dataclass(frozen=True, slots=True)
class AtDepth:
    """Trials of pods to whose depth the mix of their requests had settled."""

    depth: int
    trials: Trials


Settled = tuple[AtDepth, ...]
"""By depth, ascending."""


@dataclass(frozen=True, slots=True)
class Held:
    """The depth that a pod is at, and since when (Unix seconds)."""

    pod: str
    depth: int
    since_s: float


def held(deltas: Iterable[PodDelta], before: Iterable[Held]) -> tuple[Held, ...]:
    """With what was counted in one more window. A depth that is new was not held before its end."""
    found = {each.pod: each for each in before}
    for each in deltas:
        depth = _main_depth(each)
        known = found.get(each.pod)
        if depth is not None and (known is None or known.depth != depth):
            found[each.pod] = Held(each.pod, depth, each.to_s)
    return tuple(found.values())


def settled(deltas: Iterable[PodDelta], known: Iterable[Held], after_s: float) -> Settled:
    """Trials by depth, of pods that had held theirs for so many seconds."""
    since_s = {each.pod: each.since_s for each in known}
    return joined(
        AtDepth(depth, trials(each.drafts))
        for each in deltas
        if (depth := _main_depth(each)) is not None
        and each.from_s >= since_s.get(each.pod, inf) + after_s
    )


def _main_depth(delta: PodDelta) -> int | None:
    """The depth of nearly all its drafts; None: there were none."""
    drafts: dict[int, float] = {}
    for cell, counts in delta.drafts.items():
        drafts[cell.depth] = drafts.get(cell.depth, 0.0) + counts.drafts
    whole = sum(drafts.values())
    if whole <= 0:
        return None
    main = max(drafts, key=drafts.__getitem__)
    return main if drafts[main] >= ONE_DEPTH_SHARE * whole else _SEVERAL_DEPTHS


def joined(*many: Iterable[AtDepth]) -> Settled:
    """The trials of all, of the depths with most of them."""
    sums: dict[int, Trials] = {}
    for each in chain(*many):
        sums[each.depth] = sums.get(each.depth, NO_TRIALS) + each.trials
    most = sorted(sums, key=lambda depth: -position_at(sums[depth].reached, 0))[:MOST_DEPTHS]
    return tuple(AtDepth(depth, sums[depth]) for depth in sorted(most))


def at_depth(many: Iterable[AtDepth], depth: int) -> Trials:
    """Those of one depth; none where it is not among them."""
    return next((each.trials for each in many if each.depth == depth), NO_TRIALS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shift:
    """What a depth makes once the mix has settled to it, beside what the mix at another promised.

    Attributes:
        depth: the depth.
        promised_at: the depth at which the promise was made.
        shift: logarithm of E[L] made over E[L] promised.
        variance: of that.
        at_s: when it was seen (Unix seconds).
    """

    depth: int
    promised_at: int
    shift: float
    variance: float
    at_s: float

    def variance_at(self, now_s: float) -> float:
        """Its variance by now."""
        return self.variance / decay(now_s - self.at_s, SHIFT_HALF_LIFE_S)


def beyond(trials: Trials, positions: int) -> Trials:
    """Those of deeper positions alone."""
    nothing = (0.0,) * positions
    return Trials(nothing + trials.reached[positions:], nothing + trials.accepted[positions:])


def most_tried(many: Settled) -> AtDepth:
    """The depth with most drafts."""
    return max(many, key=lambda each: position_at(each.trials.reached, 0))


@dataclass(frozen=True, slots=True)
class Residence:
    """Little's law: requests in steps, over time, by requests that ended."""

    request_seconds: float = 0.0
    finished: float = 0.0
    at_s: float = 0.0

    @property
    def seconds(self) -> float | None:
        """Mean time of a request in the engine; None: too few have ended."""
        return self.request_seconds / self.finished if self.finished >= LEAST_REQUESTS else None

    def updated(self, deltas: Iterable[PodDelta], at_s: float) -> "Residence":
        """With what pods counted in one more window; without any steps, the very same."""
        counted = [each for each in deltas if each.steps > 0]
        if not counted:
            return self
        kept = decay(at_s - self.at_s, HALF_LIFE_S)
        request_seconds, finished = kept * self.request_seconds, kept * self.finished
        for each in counted:
            finished += each.engine.finished_requests
            request_seconds += sum(
                counts.scheduled_requests / counts.steps * counts.step_seconds
                for counts in each.cells.values()
                if counts.steps > 0
            )
        return Residence(request_seconds, finished, at_s)
