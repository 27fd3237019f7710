"""What a person reads of a decision. Numbers always, and the batch they hold for."""

from collections.abc import Iterable, Mapping
from math import log1p
from typing import Final

from fathom.api.conditions import Reason
from fathom.engine.depth import batches
from fathom.times import rfc3339
from fathom.tuning.estimate.acceptance_length import Trials
from fathom.tuning.estimate.reference import Reference, survival
from fathom.tuning.policy.option import DepthOption, LeftOut


def moves(options: Iterable[DepthOption], max_batch: int) -> str:
    """Such as `batch 5-8 from 3 to 5 (+6.1% ± 1.9%)`."""
    return "; ".join(
        f"{batches(each.bucket, max_batch)} from {each.start} to {each.to} ({each.gain})"
        for each in options
    )


def tries(options: Iterable[DepthOption], max_batch: int) -> str:
    """Such as `depth 5 at batch 5-8 (+4.0% ± 6.0%, predicted, over 3)`."""
    return "; ".join(
        f"depth {each.to} at {batches(each.bucket, max_batch)} ({each.gain} over {each.start})"
        for each in options
    )


def left_out(depths: Mapping[int, LeftOut]) -> str:
    """Such as `depth 1 would miss the SLO; depth 7 would miss the SLO`; empty: none was."""
    return "; ".join(f"depth {depth} {why}" for depth, why in sorted(depths.items()))


def full_steps(token_budget: float) -> str:
    """What helps where prompts wait for room in every step."""
    return (
        f"Prompts fill the engines' steps, of {token_budget:.0f} tokens each: deeper drafts cannot "
        "help those that wait, more replicas can."
    )


DEPTH_0_RULES: Final = (
    "Depth 0 is best for most of the load, and is not off: the draft still runs in each "
    "step. An engine without drafts may be faster (by 24 % on an H200, for hard text at 16 "
    "requests): speculation.drafting: Canary measures that in one replica."
)
PREEMPTED: Final = (
    "What it gains is not shown: the KV cache is full, so that requests are preempted, and their "
    "prompts read once more. Fewer requests at once (--max-num-seqs), more memory for the cache, "
    "or more replicas end that."
)
UNNAMED: Final = (
    "does not know its pod's name (variable FATHOM_POD_NAME), so no depth can be given to it alone"
)
OLDER_PLUGIN: Final = (
    "What it gains is unknown: these pods have an older plugin, which does not count prompts. The "
    "next rollout brings the newer one."
)


def held_against(reference: Reference | None) -> str:
    """What acceptance is held against, and where it is; empty: nothing was drafted yet."""
    if reference is None or not reference.began_at_s:
        return ""
    since = f"The first day of this draft began {rfc3339(reference.began_at_s)}"
    if not reference.is_taken:
        return f"{since} and is not over: it becomes the reference of acceptance."
    first = f"{since}: survival by position was {_listed(reference.first)}"
    if reference.ratio is None:
        return f"{first}."
    return (
        f"{first}; on the last day it was {_listed(reference.last)}, which is "
        f"{reference.ratio:.0%} at the first position."
    )


def _listed(day: Trials) -> str:
    return " ".join(f"{each:.2f}" for each in survival(day))


def stays_alone(
    left: Mapping[int, Mapping[int, LeftOut]], depths: Mapping[int, int], max_batch: int
) -> tuple[Reason, str]:
    """Why no bucket moves where no other depth is an option.

    Args:
        left: by bucket, the depths that were left out, and why.
        depths: by bucket, the one in force.
        max_batch: of the engine.
    """
    text = ". ".join(
        f"{batches(bucket, max_batch)} stays at {depths[bucket]}: {left_out(each)}"
        for bucket, each in left.items()
        if each
    )
    return Reason.AT_BEST, f"No other depth is an option: {text}."


def stays(options: Iterable[DepthOption], max_batch: int, min_gain: float) -> tuple[Reason, str]:
    """Why no bucket moves, given the best other depth of each."""
    rivals = tuple(options)
    text = "; ".join(
        f"{batches(each.bucket, max_batch)} stays at {each.start}, next best {each.to} "
        f"({each.gain})"
        for each in rivals
    )
    best = max(rivals, key=lambda each: each.gain.mean, default=None)
    if best is None:
        return Reason.AT_BEST, "There is no other depth between minTokens and maxTokens."
    if best.gain.mean <= 0:
        return Reason.AT_BEST, f"The depths in force are the best known: {text}."
    if best.gain.mean < log1p(min_gain):
        return Reason.GAIN_TOO_SMALL, f"No change gains {min_gain:.1%} or more: {text}."
    why = "within the error" if best.gain.step_time_measured else "is to be tried first"
    return Reason.GAIN_UNCERTAIN, f"A gain is possible, but {why}: {text}."
