"""What is worth trying: depths that may be better, and would be known better by a probe."""

from math import inf, log1p
from typing import Final

from fathom.tuning.policy.option import DepthOption, ProbePlan
from fathom.tuning.policy.policy import PROMISING_AGAIN_S, Policy

FARTHEST_GUESS_TOKENS: Final = 2
"""Tokens that a probe may be away from what was measured while the slope is a guess."""
HORIZON_S: Final = 3600.0
"""How long what a probe teaches is counted as useful: an hour, after which load has moved on."""
OVERHEAD_LOSS: Final = 0.002
"""What any probe costs the probed pod: two changes of depth, steps that mix both."""


def experiments(policy: Policy, probe: ProbePlan, *, sure: bool = False) -> tuple[DepthOption, ...]:
    """The depth most worth trying in each bucket under load, if it is worth more than it costs.

    Worth: what knowing it exactly gains all pods for an hour. Cost: what the probed pod is
    expected to lose in the meantime.

    Args:
        policy: what is known.
        probe: how it would be tried.
        sure: only of depths that are faster beyond doubt, as predicted, and by enough for a move.
    """
    wanted: list[tuple[float, DepthOption]] = []
    for bucket, share in policy.measurable.items():
        options = [
            (gained, option)
            for option in policy.alternatives(bucket, share)
            if (not sure or _is_sure(policy, option))
            and policy.may_visit(bucket, option.to, _most_rest_s(policy, option))
            and _in_reach(policy, bucket, option.to)
            and policy.may_try(option, probe.pods)
            and (gained := worth(policy, option, probe)) > 0
        ]
        if options:
            wanted.append(max(options, key=lambda each: each[0]))
    return tuple(option for _, option in wanted)


def worth(policy: Policy, option: DepthOption, probe: ProbePlan) -> float:
    """Pod-seconds of throughput that a probe may gain by what it teaches, less what it costs."""
    taught = option.gain.worth_knowing(log1p(policy.bounds.min_gain))
    cost = option.gain.expected_loss + OVERHEAD_LOSS
    return option.share * (taught * HORIZON_S * probe.pods - cost * probe.seconds)


def _is_sure(policy: Policy, option: DepthOption) -> bool:
    # Of its speed: an SLO may make a slower depth a gain.
    speed = policy.evidence.gain(option.bucket, option.to, option.start)
    return (
        speed is not None
        and not speed.step_time_measured
        and speed.lower() > 0
        and speed.mean >= policy.least_gain(option)
    )


def _most_rest_s(policy: Policy, option: DepthOption) -> float:
    return PROMISING_AGAIN_S if option.gain.mean >= policy.least_gain(option) else inf


def _in_reach(policy: Policy, bucket: int, depth: int) -> bool:
    """Whether the slope is known well enough to look that far; the next one always is."""
    table, kind = policy.evidence.table, policy.evidence.traffic.kind(bucket)
    known = table.measured_depths(bucket, kind)
    if len(known) > 1 or table.compared_elsewhere(bucket, kind):
        return True
    anchors = [cell.depth for cell in known] or [policy.depths[bucket]]
    return any(
        abs(depth - anchor) <= FARTHEST_GUESS_TOKENS
        or not any(min(depth, anchor) < each < max(depth, anchor) for each in policy.bounds.depths)
        for anchor in anchors
    )
