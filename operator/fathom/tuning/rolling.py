"""Depth by rollout, where no engine can change it live: one pod first, then all, and seldom.

The depth document is carried out by new pods: its schedule by all, its override by the canary. A
restart costs a replica for as long as it loads, so three things bound what is tried: what a canary
teaches must be worth its restart, what is promoted must pay for its roll within days, and there are
at most two promotions a week. A canary runs another depth than the others at every batch, so each
hour of it measures another batch's slope; it is judged when most of the load was seen.
"""

from dataclasses import dataclass, replace
from math import erf, expm1, log1p, sqrt
from typing import Final

from fathom.api.conditions import Reason
from fathom.core.depth import DepthDocument, summary
from fathom.tuning.buckets import Depths, schedule_of
from fathom.tuning.interface import Action, TuningDecision
from fathom.tuning.rolls import Canary
from fathom.tuning.situation import Situation
from fathom.tuning.value import Gain

PAYBACK_S: Final = 3 * 24 * 3600.0
"""What is gained over three days pays for a roll …"""
PAYBACK: Final = 3.0
"""… this many times."""
RESTART_S: Final = 3600.0
"""What loading is assumed to take until a restart was seen: large models take about an hour."""
LEAST_GAIN: Final = 0.01
LEAST_CERTAINTY: Final = 0.9
"""P(gain > 0) that a promotion needs."""
LEARN_S: Final = 3600.0
"""Traffic seen before the first canary."""
BAKE_S: Final = 1200.0
LONGEST_BAKE_S: Final = 12 * 3600.0
COVERED: Final = 0.7
"""Share of the load whose batches were measured at the canary's depths."""
WEEK_S: Final = 7 * 24 * 3600.0
MOST_PROMOTIONS: Final = 2
"""A week."""
COOLDOWN_S: Final = 3 * 3600.0
VETO_S: Final = 24 * 3600.0
"""Rest after a canary that was not promoted."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A schedule, and what it is worth over the one in force, weighted by the days' load."""

    depths: Depths
    gain: Gain


def judge_canary(given: Situation) -> TuningDecision | None:
    """Promote what the canary has shown to be better, or end it."""
    canary = given.state.rolls.canary
    if canary is None:
        return None
    pod = next((each for each in given.snapshot.pods if each.name == canary.pod), None)
    age_s = given.now_s - canary.started_at_s
    if pod is None and age_s > BAKE_S:
        return _end(given, f"{canary.pod} is gone.")
    covered = _covered(given, canary)
    if age_s < BAKE_S or (covered < COVERED and age_s < LONGEST_BAKE_S):
        return given.hold(
            Reason.CANARY,
            f"{canary.pod} runs {summary(given.document.for_pod(canary.pod))}; {covered:.0%} of "
            "the load was compared so far.",
        )
    return _judged(given, age_s)


def _judged(given: Situation, age_s: float) -> TuningDecision:
    plan = best_plan(given, measured=True)
    if (
        plan is None
        or plan.gain.mean < log1p(LEAST_GAIN)
        or _certainty(plan.gain) < LEAST_CERTAINTY
    ):
        return _end(given, f"No better schedule was found ({plan.gain if plan else 'no data'}).")
    if not _pays(given, plan.gain.mean, rolls=len(given.snapshot.pods)):
        return _end(given, f"The gain ({plan.gain}) does not pay for a roll.")
    if not given.state.load.is_trough(given.now_s) and age_s < LONGEST_BAKE_S + VETO_S:
        return given.hold(
            Reason.CANARY, f"Waits for an hour with less load to roll out ({plan.gain})."
        )
    return _promote(given, plan)


def start_canary(given: Situation) -> TuningDecision | None:
    """Try a better schedule on one pod, if what it teaches is worth the restart."""
    state = given.state
    ready = [pod for pod in given.snapshot.pods if pod.ready and pod.pinned_depth is None]
    known_s = given.now_s - state.load.since_s if state.load.since_s else 0.0
    if len(ready) <= 1 or known_s < LEARN_S or not _may_roll(given):
        return None
    plan = best_plan(given, measured=False)
    if plan is None or not _pays(given, plan.gain.expected_improvement, rolls=1):
        return None
    if plan.gain.expected_improvement < LEAST_GAIN or plan.depths == given.policy.depths:
        return None
    pod = max(ready, key=lambda each: each.name)
    canary = Canary(pod.name, tuple(sorted(plan.depths.items())), given.now_s)
    after = given.with_state(replace(state, rolls=replace(state.rolls, canary=canary)))
    document = _document(after, given.policy.depths, canary)
    return replace(
        after.act(
            Action.CANARY,
            Reason.CANARY,
            f"{pod.name} is restarted with {summary(document.for_pod(pod.name))} instead of "
            f"{summary(given.document.schedule)}, expected {plan.gain}.",
            document,
            notable=True,
        ),
        expected_gain=expm1(plan.gain.mean),
    )


def _may_roll(given: Situation) -> bool:
    return given.state.rolls.may_roll(given.now_s, MOST_PROMOTIONS, WEEK_S, COOLDOWN_S)


def best_plan(given: Situation, *, measured: bool) -> Plan | None:
    """The best depth of every batch that had load over the last days.

    With `measured`, only depths that were measured at that batch, or lie next to or between such.
    """
    policy, shares = given.policy, given.state.load.shares()
    depths = dict(policy.depths)
    mean = sd = 0.0
    known = False
    for bucket, share in shares.items():
        if bucket not in depths:
            continue
        start = depths[bucket]
        options = {
            depth: gain
            for depth in policy.bounds.depths
            if (gain := policy.evidence.gain(bucket, depth, start)) is not None
            and (not measured or _within_measured(given, bucket, depth))
        }
        if not options:
            continue
        known = True
        best = max(options, key=lambda depth: options[depth].mean)
        if options[best].mean > 0:
            depths[bucket] = best
            mean += share * options[best].mean
            # The errors of all buckets have the slope and the traffic in common.
            sd += share * options[best].sd
    idle = {bucket for bucket in depths if bucket not in shares}
    for bucket in idle:
        nearest = min(shares, key=lambda other: (abs(other - bucket), other), default=bucket)
        depths[bucket] = depths.get(nearest, depths[bucket])
    return Plan(depths, Gain(mean, sd, measured, measured)) if known else None


def _within_measured(given: Situation, bucket: int, depth: int) -> bool:
    kind = given.policy.evidence.traffic.kind(bucket)
    known = [cell.depth for cell in given.policy.evidence.table.measured_depths(bucket, kind)]
    return len(known) > 1 and min(known) - 1 <= depth <= max(known) + 1


def _covered(given: Situation, canary: Canary) -> float:
    shares = given.state.load.shares()
    return sum(
        shares.get(bucket, 0.0)
        for bucket, depth in canary.depths
        if bucket in shares
        and (depth == given.policy.depths.get(bucket) or _is_measured(given, bucket, depth))
    )


def _is_measured(given: Situation, bucket: int, depth: int) -> bool:
    kind = given.policy.evidence.traffic.kind(bucket)
    known = given.policy.evidence.table.measured_depths(bucket, kind)
    return any(cell.depth == depth for cell in known)


def _certainty(gain: Gain) -> float:
    """P(gain > 0)."""
    if gain.sd <= 0:
        return 1.0 if gain.mean > 0 else 0.0
    return (1 + erf(gain.mean / gain.sd / sqrt(2))) / 2


def _pays(given: Situation, gain: float, *, rolls: int) -> bool:
    """Whether a gain pays for so many restarts several times."""
    pods = len(given.snapshot.pods)
    return gain * PAYBACK_S * pods >= PAYBACK * RESTART_S * rolls


def _promote(given: Situation, plan: Plan) -> TuningDecision:
    rolls = given.state.rolls.promoted(given.now_s, WEEK_S)
    after = given.with_state(replace(given.state, rolls=rolls))
    document = _document(after, plan.depths, None)
    return replace(
        after.act(
            Action.PROMOTE,
            Reason.MOVED,
            f"Rolls out {summary(document.schedule)} instead of "
            f"{summary(given.document.schedule)} ({plan.gain}).",
            document,
            notable=True,
        ),
        expected_gain=expm1(plan.gain.mean),
    )


def _end(given: Situation, why: str) -> TuningDecision:
    rolls = replace(given.state.rolls, canary=None, rest_until_s=given.now_s + VETO_S)
    after = given.with_state(replace(given.state, rolls=rolls))
    return after.act(
        Action.ROLL_BACK,
        Reason.GAIN_TOO_SMALL,
        f"The canary is ended: {why}",
        _document(after, given.policy.depths, None),
        notable=True,
    )


def _document(given: Situation, depths: Depths, canary: Canary | None) -> DepthDocument:
    most = given.settings.max_batch
    pods = dict(given.pins)
    if canary is not None:
        pods[canary.pod] = schedule_of(dict(canary.depths), most)
    document = DepthDocument(
        generation=max(given.document.generation, given.state.generation) + 1,
        schedule=schedule_of(depths, most),
        pods=pods,
    )
    return given.document if document.same_depths(given.document) else document
