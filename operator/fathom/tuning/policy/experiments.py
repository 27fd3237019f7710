"""What is worth trying, by its expected value or by the clock.

An experiment tries what may be better. A scheduled look is at what nobody expects to be better, so
that it is known anyway: at the user's own depth, which the gain is told against (`control`),
at the ends of the range, before which a cliff may hide (`ends`), and at any depth where nothing is
drafted (`sentinel`). Each says which depth of which buckets is due; none: nothing.
"""

from collections.abc import Mapping
from dataclasses import replace
from math import inf, log, log1p, sqrt
from typing import Final

from fathom.tuning.policy.option import DepthOption, ProbePlan
from fathom.tuning.policy.policy import PROMISING_AGAIN_S, Policy

FARTHEST_GUESS_TOKENS: Final = 2
"""Tokens that a probe may be away from what was measured while the slope is a guess."""
HORIZON_S: Final = 3600.0
"""How long what a probe teaches is counted as useful: an hour, after which load has moved on."""
OVERHEAD_LOSS: Final = 0.002
"""What any probe costs the probed pod: two changes of depth, steps that mix both."""
CONTROL_AGAIN_S: Final = 1800.0
"""How old the step time at the user's own depth may be."""
LEAST_CONTROL_SHARE: Final = 0.1
"""Share of the busy time: buckets with less hardly count, so nothing is due there."""
SENTINEL_EVERY_S: Final = (10.0, 900.0)
"""A fleet at depth 0 looks for drafts' worth no more and no less often than this."""
LEAST_MISSED_GAIN: Final = 0.3
"""What drafts gain (log) once traffic has turned, at least: it may be of a kind that was never
seen, and what EAGLE 3.1 is published to gain is 0.5 to 0.7 (1.66 to 2.03 times)."""


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


def control(policy: Policy, look: ProbePlan) -> tuple[DepthOption, ...]:
    """Buckets in which the user's own depth was never measured, or long ago."""
    tokens = policy.clamped(policy.bounds.tokens)
    wanted: list[DepthOption] = []
    for bucket, share in policy.measurable.items():
        gain = policy.evidence.gain(bucket, tokens, policy.depths[bucket])
        cell = policy.evidence.table.at(bucket, tokens, policy.evidence.traffic.kind(bucket))
        if (
            gain is not None
            and share >= LEAST_CONTROL_SHARE
            and tokens != policy.depths[bucket]
            and (cell is None or policy.evidence.now_s - cell.at_s > CONTROL_AGAIN_S)
            and policy.may_visit(bucket, tokens, CONTROL_AGAIN_S)
        ):
            option = DepthOption(
                bucket=bucket, start=policy.depths[bucket], to=tokens, gain=gain, share=share
            )
            wanted += [option] if policy.may_try(option, look.pods) else []
    return tuple(wanted)


def ends(policy: Policy, look: ProbePlan) -> tuple[DepthOption, ...]:
    """Where the shallowest or the deepest draft was never measured, to look at it once.

    Between depths that were measured a line says enough; beyond them, a cliff may hide that no
    line foretells: depths 2 to 7 padded to one captured graph, and depth 1 to half of it.
    """
    wanted: list[DepthOption] = []
    drafting = [depth for depth in policy.bounds.depths if depth]
    ends = {drafting[0], drafting[-1]}
    for bucket, share in policy.measurable.items():
        if share < LEAST_CONTROL_SHARE or not (policy.depths[bucket] and policy.compared(bucket)):
            continue
        kind = policy.evidence.traffic.kind(bucket)
        unseen = [
            each
            for each in policy.alternatives(bucket, share)
            if each.to in ends
            and policy.evidence.table.at(bucket, each.to, kind) is None
            and _conceivable(policy, each) > log1p(policy.bounds.min_gain)
            and policy.may_visit(bucket, each.to)
            and policy.may_try(each, look.pods)
        ]
        if unseen:
            wanted.append(max(unseen, key=lambda each: _conceivable(policy, each)))
    return tuple(wanted)


def _conceivable(policy: Policy, option: DepthOption) -> float:
    """What an end would gain (log) if a cliff lay between it and the nearest measured depth.

    A shallower one's steps could take as much less as they have fewer tokens, and a deeper
    one's no longer.
    """
    table, kind = policy.evidence.table, policy.evidence.traffic.kind(option.bucket)
    depths = (cell.depth for cell in table.measured_depths(option.bucket, kind))
    nearest = min(depths, key=lambda depth: abs(depth - option.to))
    cliff = max(0.0, log((nearest + 1) / (option.to + 1)))
    gain = policy.evidence.gain(option.bucket, nearest, option.start)
    length, _ = policy.evidence.lengths(option.bucket).log_ratio(option.to, nearest)
    return length + cliff + (gain.mean if gain is not None else 0.0)


def sentinel(policy: Policy, look: ProbePlan) -> tuple[DepthOption, ...]:
    """Where nothing is drafted any more, a look now and then at what would be accepted.

    At depth 0 there is no acceptance to measure: without this, the tuner would never learn that
    speculation pays again. Looks every T seconds cost cost/T; until the next one, traffic that
    turns loses gain/2 for T of every 1/turns seconds. T = √(2·cost / (turns·gain)) is least.

    As long as there was none, what one costs is a guess, and the first comes soon.
    """
    shares = policy.measurable
    if any(policy.depths[bucket] for bucket in policy.shares):
        return ()
    best = (
        max(
            (
                each
                for each in policy.alternatives(bucket, share)
                if each.to > 0 and policy.may_try(each, look.pods)
            ),
            key=lambda each: each.gain.mean,
            default=None,
        )
        for bucket, share in shares.items()
    )
    options = tuple(option for option in best if option is not None)
    least, most = SENTINEL_EVERY_S
    blind_s = policy.evidence.now_s - policy.evidence.text.at_s
    if look.rested_s is None:
        return options if blind_s >= least else ()
    loss = sum(each.share * (each.gain.expected_loss + OVERHEAD_LOSS) for each in options)
    turns_per_s = policy.evidence.text.turns_per_s
    best_s = sqrt(
        2 * look.seconds * loss / max(1, look.pods) / (turns_per_s * _missed(policy, shares))
    )
    rest_s = min(most, max(least, best_s))
    return options if min(look.rested_s, blind_s) >= rest_s else ()


def _missed(policy: Policy, shares: Mapping[int, float]) -> float:
    """What drafts would gain if as much of them were accepted as is normal here."""
    normal = replace(policy.evidence, text=policy.evidence.text.normal(policy.evidence.now_s))
    missed = 0.0
    for bucket, share in shares.items():
        gains = (normal.gain(bucket, depth, 0) for depth in policy.bounds.depths if depth)
        best = max((each.mean for each in gains if each is not None), default=0.0)
        missed += share * max(0.0, best)
    return max(LEAST_MISSED_GAIN, missed)
