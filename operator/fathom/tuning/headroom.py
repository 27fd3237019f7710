"""How many more tokens per second the pods could serve at the depths in force. Pure.

A busy pod whose batches lie in bucket b makes one token in the seconds that `policy.value` says,
prompts included: with the bucket's mean batch, at the pods' present speed, and with the prompts of
the present traffic. What a pod can serve is at least the most of that over the buckets in which the
depth in force was measured and which, with objective Goodput, keep the SLO. The headroom is that
times the ready pods that can be read, less what they serve now. Beyond the largest batch that was
measured nothing is known: where that is the fastest, and the pods have it now, the headroom is
unknown, and not zero.
"""

from collections.abc import Iterator
from dataclasses import replace

from fathom.tuning.estimate.step_time import CellTime
from fathom.tuning.policy.policy import Policy


def headroom(policy: Policy, served_now: float | None, pods: int) -> float | None:
    """Tokens per second that could at least be served beside those that are; None: not measured.

    Args:
        policy: what is known, and the depths in force.
        served_now: tokens per second of all pods that can be read; None: not measured.
        pods: of these, the ready ones.
    """
    if served_now is None or not pods or not policy.evidence.tells_gain:
        return None
    # As of the last step: at rest nothing becomes less certain, so that nothing is written.
    evidence = replace(policy.evidence, now_s=policy.evidence.traffic.at_s)
    policy = replace(policy, evidence=evidence)
    known = dict(_tokens_per_second(policy))
    if not known:
        return None
    kept = {bucket: rate for bucket, rate in known.items() if _keeps_the_slo(policy, bucket)}
    if not kept:
        return 0.0
    fastest = max(kept, key=lambda bucket: kept[bucket])
    is_the_end = fastest < max(known) or fastest == max(policy.depths)
    if not is_the_end and fastest <= max(policy.evidence.traffic.shares(), default=0):
        return None
    return max(0.0, pods * kept[fastest] - served_now)


def _tokens_per_second(policy: Policy) -> Iterator[tuple[int, float]]:
    """Rate of one busy pod, by bucket, where the depth in force was measured."""
    batches = policy.evidence.traffic.log_batches()
    for bucket, depth in policy.depths.items():
        if (cell := _measured(policy, bucket)) is not None:
            log_batch = batches.get(bucket, cell.log_batch)
            seconds = policy.evidence.seconds_per_token(bucket, depth, log_batch)
            if seconds:
                yield bucket, 1 / seconds


def _measured(policy: Policy, bucket: int) -> CellTime | None:
    """The step time at the depth in force; None: it was not measured."""
    evidence = policy.evidence
    cells = evidence.table.measured_depths(bucket, evidence.traffic.kind(bucket))
    return next((cell for cell in cells if cell.depth == policy.depths.get(bucket)), None)


def _keeps_the_slo(policy: Policy, bucket: int) -> bool:
    if policy.slo is None:
        return True
    slow = policy.slo.slow_seconds(policy.evidence, bucket, policy.depths[bucket])
    return slow is not None and not policy.slo.loses(slow)
