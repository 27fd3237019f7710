"""Schedules that a canary could run, or that all pods could: what each is worth, and how surely.

What a canary has shown (`fathom.tuning.comparison`) decides what is rolled out. What the tables
predict (`fathom.tuning.policy`) only chooses what is tried next.
"""

from dataclasses import dataclass
from math import erf, log2, sqrt
from typing import Final

from fathom.tuning.buckets import Depths
from fathom.tuning.rolls import Canary
from fathom.tuning.situation import Situation
from fathom.tuning.value import Gain

LEAST_GAIN: Final = 0.01
BETTER_Z: Final = 1.0
"""Standard errors by which a depth must be ahead in a bucket to be taken there; of many that seem
ahead, some are by chance."""
EXPLORE_GAIN: Final = 0.005
"""Expected improvement in a bucket above which its depth is worth trying."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A schedule, and what it is worth over the one in force, weighted by the days' load."""

    depths: Depths
    gain: Gain

    @property
    def certainty(self) -> float:
        """P(gain > 0)."""
        return (1 + erf(self.gain.mean / self.gain.sd / sqrt(2))) / 2 if self.gain.sd else 0.0


def shown(given: Situation, bucket: int, depth: int) -> Gain | None:
    """What a canary has shown a depth to gain over the one in force; None: nothing yet.

    With objective Goodput, what it gains under the SLO, which the tables know.
    """
    in_force = given.policy.depths[bucket]
    busy = {each.hour: each.busy.get(bucket, 0.0) for each in given.state.load.hours}
    gain = given.state.rolls.comparison.gain(bucket, depth, in_force, busy)
    if gain is None or given.policy.slo is None:
        return gain
    return given.policy.gain(bucket, depth, in_force)


def best_plan(given: Situation) -> Plan:
    """The best depth of every batch, of those that any canary has shown."""
    depths = dict(given.policy.depths)
    mean = sd = 0.0
    for bucket, share in given.state.load.shares().items():
        best = _best(given, bucket)
        if best is None:
            continue
        depths[bucket], gain = best
        mean += share * gain.mean
        # The errors of all buckets have the pod and the traffic in common.
        sd += share * gain.sd
    return Plan(_with_unseen(given, depths), Gain(mean, sd, True, True))  # noqa: FBT003


def next_canary(given: Situation) -> Plan | None:
    """The depths that could gain most beyond what was shown, and the best that was, elsewhere.

    Its gain is the expected improvement alone. None: nothing is worth trying.
    """
    policy, shares = given.policy, given.state.load.shares()
    depths = dict(policy.depths)
    improvement = 0.0
    for bucket, share in shares.items():
        if bucket not in depths:
            continue
        best = _best(given, bucket)
        ahead = best[0] if best is not None else policy.depths[bucket]
        options = {
            depth: gain.expected_improvement
            for depth in policy.bounds.depths
            if depth != policy.depths[bucket]
            and shown(given, bucket, depth) is None
            and (gain := policy.gain(bucket, depth, ahead)) is not None
        }
        depth = max(options, key=lambda each: options[each], default=None)
        if depth is not None and options[depth] >= EXPLORE_GAIN:
            depths[bucket] = depth
            improvement += share * options[depth]
        elif best is not None:
            depths[bucket] = best[0]
    if improvement < LEAST_GAIN:
        return None
    return Plan(_with_unseen(given, depths), Gain(improvement, 0.0, False, False))  # noqa: FBT003


def runs(given: Situation, canary: Canary, plan: Plan) -> bool:
    """Whether the canary runs these depths wherever there is load."""
    running = dict(canary.depths)
    under_load = given.state.load.shares().keys() & running.keys() & plan.depths.keys()
    return all(running[bucket] == plan.depths[bucket] for bucket in under_load)


def _best(given: Situation, bucket: int) -> tuple[int, Gain] | None:
    """The best depth that was shown to be better than the one in force, and what it gains."""
    if bucket not in given.policy.depths:
        return None
    options = {
        depth: gain
        for depth in given.state.rolls.comparison.compared(bucket)
        if depth in given.policy.bounds.depths and (gain := shown(given, bucket, depth)) is not None
    }
    depth = max(options, key=lambda each: options[each].lower(BETTER_Z), default=None)
    better = depth is not None and options[depth].lower(BETTER_Z) > 0
    return (depth, options[depth]) if depth is not None and better else None


def _with_unseen(given: Situation, depths: dict[int, int]) -> dict[int, int]:
    """Batches that had no load take after their nearest neighbour only where that is safe.

    That is where a gain is certain though it is only predicted, and at larger batches where the
    neighbour became shallower: the larger the batch, the dearer is depth.
    """
    policy = given.policy
    known = [bucket for bucket in given.state.load.shares() if bucket in depths]
    if not known:
        return depths
    for bucket in set(depths).difference(known):
        near = depths[min(known, key=lambda other: (abs(log2(other / bucket)), other))]
        gain = policy.gain(bucket, near, policy.depths[bucket])
        dearer = bucket > max(known) and near < depths[bucket]
        if dearer or (gain is not None and gain.lower() > 0):
            depths[bucket] = near
    return depths
