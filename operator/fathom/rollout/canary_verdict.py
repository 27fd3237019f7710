"""Whether a canary is as good as what it would replace. Pure.

A change that a person asked for need not be faster; it must not be worse. It is worse if speed,
the tail of a latency, errors or preemptions are, beyond doubt. Doubt is settled by watching on, for
a bounded time.
"""

from dataclasses import dataclass
from enum import StrEnum
from math import exp, expm1, inf, log1p, sqrt
from typing import Final

from fathom.api.conditions import Reason
from fathom.measurement.counters import Histogram
from fathom.rollout.canary_evidence import (
    SLOWEST_SHARE,
    CanaryContrast,
    CanaryEvidence,
    requests_in,
    slow_share,
    tail_bound,
)
from fathom.text import counted

MOST_LOSS: Final = 0.01
"""Loss of speed: a canary that loses less is as good as the others."""
EARLY_Z: Final = 3.0
"""Standard errors beyond which a loss ends the bake early: it is looked at many times."""
END_Z: Final = 2.0
"""Standard errors that settle it once the bake is over: one of many looks again, but fewer."""
LEAST_WINDOWS: Final = 8.0
"""With a comparison, to judge by it at all."""
SLOWEST_FACTOR: Final = 2.0
"""Times the stable replicas' share of slowest requests that a canary may have."""
MOST_FAILED: Final = 0.005
"""Share of requests by which a canary may fail more than the others."""
MOST_PREEMPTIONS: Final = 0.1
"""Preemptions per request by which a canary may have more than the others."""
SURE_Z: Final = 3.0
"""Standard errors beyond which a difference of counts is none of chance."""
LEAST_EVENTS: Final = 5.0
"""Failures, preemptions or slow requests, before any are held against a canary."""
UNREAD_SHARE: Final = 0.5
"""Share of the windows; a bake with more that could not be read has shown nothing."""
LIKELY_Z: Final = 1.0
"""Standard errors that settle what is still in doubt after the longest bake. By the mean alone,
traffic that is too little to tell would give up nearly every other good canary."""
LONGEST_BAKE: Final = 3.0
"""Times `canaryMinutes`, after which what is still in doubt is decided."""


class Answer(StrEnum):
    PROMOTE = "Promote"
    ROLL_BACK = "RollBack"
    WATCH = "CanaryWatch"


@dataclass(frozen=True, slots=True)
class Verdict:
    answer: Answer
    reason: Reason
    message: str


def verdict_on(evidence: CanaryEvidence, baked_s: float, bake_s: float) -> Verdict:
    """Judge what was seen so far.

    Args:
        evidence: of this canary.
        baked_s: seconds since it is ready.
        bake_s: seconds that it should be watched at least.
    """
    worse = _worse(evidence, EARLY_Z)
    if worse is not None:
        return worse
    if baked_s < bake_s:
        left = max(1, round((bake_s - baked_s) / 60))
        return _watch(f"{so_far(evidence)}; watched for {counted(left, 'more minute')}.")
    return _at_the_end(evidence, over=baked_s >= LONGEST_BAKE * bake_s)


def verdict_alone(evidence: CanaryEvidence) -> Verdict:
    """Judge a canary that nothing is left to compare with: what was seen before counts.

    The first windows are the coldest, and resemble each other. So of its speed, those that will not
    come any more count as if it had been as good in them.
    """
    speed = evidence.speed
    seen = min(1.0, speed.windows / LEAST_WINDOWS)
    slower = _found_slower(evidence) if _is_slower(seen * speed.mean, speed.error, END_Z) else None
    worse = slower or fails(evidence) or harm_beside_speed(evidence, END_Z)
    return worse or _promote("it became ready.")


def _at_the_end(evidence: CanaryEvidence, *, over: bool) -> Verdict:
    if blind(evidence):
        return _unseen(evidence, over=over)
    if not evidence.stable.tokens and not evidence.canary.tokens:
        return _promote("no requests came, and it kept ready.")
    worse = _worse(evidence, END_Z)
    if worse is not None:
        return worse
    speed = evidence.speed
    if speed.windows >= LEAST_WINDOWS and speed.mean - END_Z * speed.error >= log1p(-MOST_LOSS):
        return _promote(f"{so_far(evidence)}.")
    return _in_doubt(evidence) if over else _watch(f"{so_far(evidence)}: not certain yet.")


def _unseen(evidence: CanaryEvidence, *, over: bool) -> Verdict:
    if not over:
        return _watch(
            "the canary and the others cannot be compared: one side's metrics cannot be read, or "
            "it is not ready, or is held at a depth: holding."
        )
    windows = f"in {evidence.blind:.0f} of {evidence.looks:.0f} windows" if evidence.looks else ""
    return _roll_back(
        Reason.METRICS_LOST,
        f"it could not be compared with the others {windows or 'at any time'}, so that nothing is "
        "known of it: one side's metrics could not be read, or it was not ready, or was held at a "
        "depth. Fix what spec.metrics names, end a pin of a depth, or set rollout.canaryMinutes to "
        "0 to roll out without a comparison.",
    )


def _in_doubt(evidence: CanaryEvidence) -> Verdict:
    if not evidence.canary.tokens:
        return _roll_back(
            Reason.CANARY_IDLE,
            "it was ready and served nothing, while the others served: see whether the Service "
            "sends it requests.",
        )
    speed = evidence.speed
    if speed.windows >= LEAST_WINDOWS and _is_slower(speed.mean, speed.error, LIKELY_Z):
        return _roll_back(
            Reason.CANARY_SLOWER,
            f"{so_far(evidence)}: likely slower, though not certain after the longest bake.",
        )
    return _promote(f"{so_far(evidence)}; no more is known after the longest bake.")


def _worse(evidence: CanaryEvidence, z: float) -> Verdict | None:
    """The first thing that is worse beyond doubt."""
    return _slower(evidence, z) or fails(evidence) or harm_beside_speed(evidence, z)


def _slower(evidence: CanaryEvidence, z: float) -> Verdict | None:
    speed = evidence.speed
    enough = speed.windows >= LEAST_WINDOWS
    return _found_slower(evidence) if enough and _is_slower(speed.mean, speed.error, z) else None


def _is_slower(mean: float, error: float, z: float) -> bool:
    return mean + z * error < log1p(-MOST_LOSS)


def _found_slower(evidence: CanaryEvidence) -> Verdict:
    return _roll_back(Reason.CANARY_SLOWER, f"{so_far(evidence)}.")


def fails(evidence: CanaryEvidence) -> Verdict | None:
    canary, stable = evidence.canary, evidence.stable
    ours, theirs = _share(canary.failed, canary.finished), _share(stable.failed, stable.finished)
    if canary.failed < LEAST_EVENTS or ours - theirs <= MOST_FAILED:
        return None
    if _z(canary.failed, canary.finished, stable.failed, stable.finished) < SURE_Z:
        return None
    return _roll_back(
        Reason.CANARY_ERRORS,
        f"{ours:.1%} of its {canary.finished:.0f} requests failed or were aborted, and "
        f"{theirs:.1%} of the others'.",
    )


def harm_beside_speed(evidence: CanaryEvidence, z: float) -> Verdict | None:
    """The first thing that is worse beyond doubt, of what requests that succeed meet besides."""
    return _slow_tails(evidence, z) or _preempts(evidence)


def _slow_tails(evidence: CanaryEvidence, z: float) -> Verdict | None:
    canary, stable = evidence.canary, evidence.stable
    found = (
        _slow_tail("time per output token", canary.tpot, stable.tpot, evidence.tpot_tail, z),
        _slow_tail("time to first token", canary.ttft, stable.ttft, evidence.ttft_tail, z),
    )
    return next((each for each in found if each is not None), None)


def _slow_tail(
    what: str, canary: Histogram, stable: Histogram, tail: CanaryContrast, z: float
) -> Verdict | None:
    bound = tail_bound(stable, SLOWEST_SHARE)
    if bound is None:
        return None
    ours, theirs = slow_share(canary, bound), slow_share(stable, bound)
    if ours * requests_in(canary) < LEAST_EVENTS or ours <= SLOWEST_SHARE * SLOWEST_FACTOR:
        return None
    if tail.windows < LEAST_WINDOWS or tail.mean <= z * tail.error:
        return None
    return _roll_back(
        Reason.CANARY_TAIL_SLOWER,
        f"{ours:.1%} of its requests have a {what} above {bound * 1000:.0f} ms, and "
        f"{theirs:.1%} of the others'.",
    )


def _preempts(evidence: CanaryEvidence) -> Verdict | None:
    canary, stable = evidence.canary, evidence.stable
    ours = _share(canary.preemptions, canary.finished)
    theirs = _share(stable.preemptions, stable.finished)
    if canary.preemptions < LEAST_EVENTS or ours - theirs <= MOST_PREEMPTIONS:
        return None
    # Counts of rare events: the variance of a Poisson count is the count.
    error = sqrt(
        canary.preemptions / canary.finished**2
        + stable.preemptions / max(1.0, stable.finished) ** 2
    )
    if ours - theirs < SURE_Z * error:
        return None
    return _roll_back(
        Reason.CANARY_PREEMPTS,
        f"it preempts {ours:.2f} times per request, and the others {theirs:.2f} times: its KV "
        "cache is too small for this traffic.",
    )


def blind(evidence: CanaryEvidence) -> bool:
    return not evidence.looks or evidence.blind >= max(1.0, evidence.looks * UNREAD_SHARE)


def so_far(evidence: CanaryEvidence) -> str:
    speed = evidence.speed
    if not speed.windows:
        return f"{counted(evidence.canary.finished, 'request')} served, too few to compare speed"
    change = expm1(speed.mean) * 100
    if speed.error == inf:
        return f"{change:+.1f} % tokens per second per request, after one window"
    margin = 2 * speed.error * exp(speed.mean) * 100
    return f"{change:+.1f} % ± {margin:.1f} tokens per second per request, compared with the others"


def _share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


def _z(part: float, whole: float, other_part: float, other_whole: float) -> float:
    """Two-proportion z statistic, pooled; 0 where nothing can be told."""
    if not whole or not other_whole:
        return 0.0
    pooled = (part + other_part) / (whole + other_whole)
    variance = pooled * (1 - pooled) * (1 / whole + 1 / other_whole)
    return (part / whole - other_part / other_whole) / sqrt(variance) if variance > 0 else 0.0


def _watch(message: str) -> Verdict:
    return Verdict(Answer.WATCH, Reason.CANARY_BAKING, message)


def _promote(message: str) -> Verdict:
    return Verdict(Answer.PROMOTE, Reason.CANARY_AS_GOOD, message)


def _roll_back(reason: Reason, message: str) -> Verdict:
    return Verdict(Answer.ROLL_BACK, reason, message)
