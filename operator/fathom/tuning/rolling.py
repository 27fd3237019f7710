"""Depth by rollout, where no engine can change it live: one pod first, then all, and seldom.

The depth document is carried out by new pods: its schedule by all, its override by the canary. A
restart costs a replica for as long as it loads, so three things bound what is tried: what a canary
teaches must be worth its restart, what is promoted must pay for its roll within days, and there are
at most two promotions a week. A campaign is a few canaries, one after the other, each at the depths
that could gain most, and at its end one promotion or none. The first may come within hours, where
much is to be gained; the second, when a whole day was seen.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import erf, expm1, hypot, log1p, sqrt
from typing import Final

from fathom.api.conditions import Reason
from fathom.api.spec import TuningMode
from fathom.core.depth import summary
from fathom.tuning.buckets import Depths
from fathom.tuning.interface import Action, TuningDecision
from fathom.tuning.rolls import Canary
from fathom.tuning.situation import Situation, clamped, within_bounds
from fathom.tuning.value import Gain

PAYBACK_S: Final = 3 * 24 * 3600.0
"""What is gained over three days pays for a roll …"""
PAYBACK: Final = 3.0
"""… this many times."""
RESTART_S: Final = 3600.0
"""What loading is assumed to take until a restart was seen: large models take about an hour."""
LEAST_GAIN: Final = 0.01
LEAST_CERTAINTY: Final = 0.95
"""P(gain > 0) that a promotion needs."""
PODS_SD: Final = 0.015
"""Difference between two pods at one depth that their past does not explain."""
SECOND_AFTER_S: Final = 20 * 3600.0
"""Between two promotions: by then most of a day was seen."""
LEARN_S: Final = 1800.0
"""Traffic seen before the first canary."""
BAKE_S: Final = 2400.0
LONGEST_BAKE_S: Final = 6 * 3600.0
COVERED: Final = 0.7
"""Share of the load whose batches were measured at the canary's depths."""
MOST_CANARIES: Final = 6
"""In a campaign."""
WEEK_S: Final = 7 * 24 * 3600.0
MOST_PROMOTIONS: Final = 2
"""A week."""
VETO_S: Final = 8 * 3600.0
"""Rest after a campaign without a promotion; it doubles with each, up to a week."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A schedule, and what it is worth over the one in force, weighted by the days' load."""

    depths: Depths
    gain: Gain


def stop_canary(given: Situation) -> TuningDecision | None:
    """The spec's bounds hold at once, and mode Advise tries nothing and keeps `tokens`."""
    advising = given.settings.mode is TuningMode.ADVISE
    depths = dict(given.policy.depths)
    if advising:
        depths = dict.fromkeys(depths, clamped(given.settings.tokens, given.settings))
    canary = given.state.rolls.canary
    if advising or (canary is not None and not within_bounds(canary, given.settings)):
        canary = None
    after = given.with_state(replace(given.state, rolls=replace(given.state.rolls, canary=canary)))
    document = after.next_document(depths, canary)
    if document is given.document:
        return None
    return after.act(
        Action.ROLL_BACK,
        Reason.ADVISING if advising else Reason.MOVED,
        f"From {summary(given.document.schedule)} to {summary(document.schedule)}: the spec asks "
        "for it.",
        document,
        notable=True,
    )


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
    """The next canary, if it could teach more than a promotion gains; else promote, or end."""
    plan, next_ = best_plan(given), next_canary(given)
    known = plan.gain.mean if plan is not None else 0.0
    tried = given.state.rolls.tried
    if (
        next_ is not None
        and tried < MOST_CANARIES
        and next_.gain.expected_improvement - max(0.0, known) >= LEAST_GAIN
    ):
        return _try(given, next_, tried + 1)
    promising = plan is not None and known >= log1p(LEAST_GAIN)
    sure = plan is not None and _certainty(plan.gain) >= LEAST_CERTAINTY
    shown = plan is not None and _runs(given, plan)
    if plan is not None and promising and not (sure and shown) and tried < MOST_CANARIES:
        return _try(given, plan, tried + 1)
    if plan is None or not (promising and sure and shown):
        return _end(given, f"No better schedule was found ({plan.gain if plan else 'no data'}).")
    if not _pays(given, known, rolls=len(given.snapshot.pods)):
        return _end(given, f"The gain ({plan.gain}) does not pay for a roll.")
    if not given.state.load.is_trough(given.now_s) and age_s < LONGEST_BAKE_S + VETO_S:
        return given.hold(
            Reason.CANARY, f"Waits for an hour with less load to roll out ({plan.gain})."
        )
    return _promote(given, plan)


def start_canary(given: Situation) -> TuningDecision | None:
    """Try other depths on one pod, if what that teaches is worth the restart."""
    state = given.state
    known_s = given.now_s - state.load.since_s if state.load.since_s else 0.0
    if known_s < LEARN_S or not _may_roll(given):
        return None
    plan = next_canary(given)
    if plan is None or plan.gain.expected_improvement < LEAST_GAIN:
        return None
    return _try(given, plan, 1)


def _try(given: Situation, plan: Plan, tried: int) -> TuningDecision:
    canary_before = given.state.rolls.canary
    name = canary_before.pod if canary_before else _candidate(given)
    canary = Canary(name, tuple(sorted(plan.depths.items())), given.now_s)
    rolls = replace(given.state.rolls, canary=canary, tried=tried)
    after = given.with_state(replace(given.state, rolls=rolls))
    document = after.next_document(given.policy.depths, canary)
    return replace(
        after.act(
            Action.CANARY,
            Reason.CANARY,
            f"{name} is restarted with {summary(document.for_pod(name))} beside "
            f"{summary(given.document.schedule)}, to see whether it gains ({plan.gain}).",
            document,
            notable=True,
        ),
        expected_gain=expm1(plan.gain.mean),
    )


def _candidate(given: Situation) -> str:
    ready = (pod.name for pod in given.snapshot.pods if pod.ready and pod.pinned_depth is None)
    return max(ready)


def _may_roll(given: Situation) -> bool:
    return given.state.rolls.may_roll(given.now_s, MOST_PROMOTIONS, WEEK_S, SECOND_AFTER_S)


def best_plan(given: Situation) -> Plan | None:
    """The best known depth of every batch that had load: measured there, or next to it."""
    return _plan(given, lambda gain: gain.mean, lambda b, d: _within_measured(given, b, d))


def next_canary(given: Situation) -> Plan | None:
    """The depths that could gain most, if one pod's restart pays for what they teach.

    None with fewer than two pods to choose from: nothing rolls by itself then.
    """
    ready = [pod for pod in given.snapshot.pods if pod.ready and pod.pinned_depth is None]
    if len(ready) <= 1:
        return None
    plan = _plan(
        given,
        lambda gain: gain.expected_improvement,
        lambda b, d: not _is_measured(given, b, d),
    )
    if plan is None or not _pays(given, plan.gain.expected_improvement, rolls=1):
        return None
    return plan if plan.depths != given.policy.depths else None


def _plan(
    given: Situation, score: Callable[[Gain], float], allowed: Callable[[int, int], bool]
) -> Plan | None:
    """For each batch under load over the last days the depth with the highest score above 0."""
    policy, shares = given.policy, given.state.load.shares()
    depths = dict(policy.depths)
    mean = sd = 0.0
    known: set[int] = set()
    for bucket, share in shares.items():
        if bucket not in depths:
            continue
        options = {
            depth: gain
            for depth in policy.bounds.depths
            if depth != depths[bucket]
            and allowed(bucket, depth)
            and (gain := policy.gain(bucket, depth, depths[bucket])) is not None
        }
        if not options:
            continue
        known.add(bucket)
        best = max(options, key=lambda depth: score(options[depth]))
        if score(options[best]) > 0:
            depths[bucket] = best
            mean += share * options[best].mean
            # The errors of all buckets have the slope and the traffic in common.
            sd += share * options[best].sd
    for bucket in depths:
        if bucket not in shares and known:
            depths[bucket] = depths[min(known, key=lambda other: (abs(other - bucket), other))]
    return Plan(depths, Gain(mean, sd, True, True)) if known else None  # noqa: FBT003


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
    """P(gain > 0), pods being as different as they are."""
    return (1 + erf(gain.mean / hypot(gain.sd, PODS_SD) / sqrt(2))) / 2


def _runs(given: Situation, plan: Plan) -> bool:
    """Whether the canary itself runs what is to be promoted, where the load is."""
    canary, shares = given.state.rolls.canary, given.state.load.shares()
    same = sum(
        shares.get(bucket, 0.0)
        for bucket, depth in (canary.depths if canary else ())
        if plan.depths.get(bucket) == depth
        or plan.depths.get(bucket) == given.policy.depths[bucket]
    )
    return same >= COVERED


def _pays(given: Situation, gain: float, *, rolls: int) -> bool:
    """Whether a gain pays for so many restarts several times."""
    pods = len(given.snapshot.pods)
    return gain * PAYBACK_S * pods >= PAYBACK * RESTART_S * rolls


def _promote(given: Situation, plan: Plan) -> TuningDecision:
    rolls = given.state.rolls.promoted(given.now_s, WEEK_S)
    after = given.with_state(replace(given.state, rolls=rolls))
    document = after.next_document(plan.depths, None)
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
    fruitless = given.state.rolls.fruitless
    rolls = replace(
        given.state.rolls,
        canary=None,
        tried=0,
        fruitless=fruitless + 1,
        rest_until_s=given.now_s + min(WEEK_S, VETO_S * 2.0**fruitless),
    )
    after = given.with_state(replace(given.state, rolls=rolls))
    return after.act(
        Action.ROLL_BACK,
        Reason.GAIN_TOO_SMALL,
        f"The canary is ended: {why}",
        after.next_document(given.policy.depths, None),
        notable=True,
    )
