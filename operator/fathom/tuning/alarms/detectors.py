"""What each alarm looks for: one pure function for each row of `table`.

Each says what it sees at this moment, in a sentence with numbers, or nothing. How long that must be
seen, and what to do about it, stands in the table.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import log
from statistics import median
from typing import Final

from fathom.api.conditions import Reason
from fathom.engine.depth import DepthDocument, depth_at, first_batch
from fathom.measurement.deltas import PodDelta
from fathom.text import counted
from fathom.tuning.alarms.alarm import Engine
from fathom.tuning.estimate.acceptance_by_context import ContextSums, thousands
from fathom.tuning.estimate.acceptance_by_position import Survival
from fathom.tuning.estimate.acceptance_changes import (
    RESTORED_SHARE,
    Acceptance,
    PodAcceptance,
)
from fathom.tuning.estimate.acceptance_length import Trials
from fathom.tuning.estimate.reference import Reference
from fathom.tuning.interface import TuningSnapshot
from fathom.tuning.policy.policy import Policy
from fathom_vllm.buckets import first_context

CLIFF_SHARE: Final = 0.68
"""Acceptance below this share of the low end of the last day is a cliff: kinds of traffic that one
draft serves differ by less."""
POD_CLIFF_SHARE: Final = 0.6
"""One pod below this share of the others' median has another draft, or a broken one."""
NORMAL_KNOWN_S: Final = 900.0
"""Seconds of normal acceptance without which nothing can be a cliff."""
DECAY_SHARE: Final = 0.05
"""Older replicas' acceptance below that of younger ones, relative."""
DECAY_Z: Final = 3.0
"""How certain that must be, by the scatter between replicas."""
PODS_SD: Final = 0.01
"""Spread of acceptance between replicas of one age, relative, at least."""
SD_PER_MEAN_DEVIATION_FACTOR: Final = 1.25
"""√(π/2): a normal distribution's standard deviation over its mean absolute deviation."""
OLD_S: Final = 3600.0
"""An engine that runs for less is young, whatever the others' age."""
OLD_FACTOR: Final = 2.0
"""Nor is one old that is not so many times as old as the youngest."""
TOO_GOOD_SHARE: Final = 0.995
"""No draft that differs from its target accepts so much; a draft that *is* its target does."""
NOTHING_ACCEPTED_SHARE: Final = 0.01
"""Share of the drafts that is accepted at the first position: as good as none."""
SOMETHING_ACCEPTED_SHARE: Final = 0.02
"""Acceptance above which nothing is no longer what is accepted."""
LONG_SHARE: Final = 0.5
"""Acceptance at long contexts below this share of that at shorter ones is the draft's doing: kinds
of text that one draft serves differ by less."""
LONG_DRAFTS_SHARE: Final = 0.05
"""Share of the drafts that long contexts must have: less is not worth another draft."""
LONG_Z: Final = 3.0
"""How certain that must be, by the scatter between windows."""
LOSES_SHARE: Final = 0.05
"""Acceptance of the first token at which drafts give a twentieth more tokens at most; drafting took
longer than that wherever it was measured."""
LEAST_STEPS: Final = 100.0
"""Steps of one pod in one window: fewer say nothing of its depth."""
OTHER_DEPTH_SHARE: Final = 0.2
"""Share of a pod's steps at a depth not asked for: a window may begin before its schedule did."""
LEAST_DRAFTS: Final = 1000.0
"""Drafts of one pod, or at one position: fewer show nothing of acceptance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """All that an alarm may be told from, after one more window with data."""

    snapshot: TuningSnapshot
    document: DepthDocument
    """In force."""
    deltas: Sequence[PodDelta]
    policy: Policy
    acceptance: Acceptance
    """How the pods that are there do."""
    standing: frozenset[Reason]
    """Reasons of the active alarms: what ends one may differ from what began it."""
    reference: Reference | None = None
    """None: it is not known what the pods serve."""


@dataclass(frozen=True, slots=True)
class Sight:
    """What is seen at this moment."""

    message: str
    """A sentence with numbers."""
    older_than_s: float | None = None
    """Age of the engines that it is about; None: it is not about age."""
    engine: Engine | None = None
    """The only one that it is about; None: it is about several."""


def acceptance_cliff(look: Look) -> Sight | None:
    """Acceptance far below the low end of the last day."""
    acceptance, standing = look.acceptance, Reason.ACCEPTANCE_CLIFF in look.standing
    normal, level = acceptance.normal, acceptance.level
    if normal is None or level is None or acceptance.known_s < NORMAL_KNOWN_S:
        return None
    if level >= normal * (RESTORED_SHARE if standing else CLIFF_SHARE):
        return None
    if acceptance.is_known_traffic and not standing:
        return None
    return Sight(
        f"The first draft token is accepted {level:.0%} of the time; over the last day it was "
        f"{normal:.0%} or more nine tenths of the time."
    )


def one_pod_differs(look: Look) -> Sight | None:
    """One pod that accepts far less than the others do, under the same traffic."""
    known = [each for each in look.acceptance.pods if each.drafts >= LEAST_DRAFTS]
    pods = [(each, each.ratio) for each in known]
    for pod, ratio in pods:
        others = [r for other, r in pods if other is not pod and r is not None]
        if ratio is not None and others and ratio < POD_CLIFF_SHARE * median(others):
            share = ratio / median(others)
            return Sight(
                f"{pod.pod} accepts {share:.0%} of what the other pods do.",
                engine=Engine(pod.pod, pod.started_at_s),
            )
    return None


def older_replicas_accept_less(look: Look) -> Sight | None:
    """Old replicas against young ones: the same traffic, so age is what differs."""
    now_s = look.snapshot.now_s
    known = [
        (now_s - each.started_at_s, each)
        for each in look.acceptance.pods
        if each.started_at_s > 0 and each.drafts >= LEAST_DRAFTS and now_s - each.at_s < OLD_S
    ]
    if not known:
        return None
    youngest_s = min(age for age, _ in known)
    split_s = max(OLD_S, OLD_FACTOR * youngest_s)
    old = [each for age, each in known if age >= split_s]
    young = [each for age, each in known if age < split_s]
    if not old or not young:
        return None
    ratio, error = _compared(old, young)
    if ratio > 1 - DECAY_SHARE or (1 - ratio) < DECAY_Z * error:
        return None
    names = ", ".join(each.pod for each in old)
    return Sight(
        f"{names} run for more than {split_s / 3600:.1f} h and accept {1 - ratio:.0%} less than "
        "replicas that started later, under the same traffic.",
        older_than_s=split_s,
    )


def _compared(old: Sequence[PodAcceptance], young: Sequence[PodAcceptance]) -> tuple[float, float]:
    """Acceptance of the old over that of the young, and its error between pods."""
    ratios = {each.pod: each.ratio or 0.0 for each in (*old, *young)}
    first = sum(ratios[each.pod] for each in old) / len(old)
    second = sum(ratios[each.pod] for each in young) / len(young)
    within = [abs(ratios[each.pod] - first) for each in old]
    within += [abs(ratios[each.pod] - second) for each in young]
    # Two pods cannot tell their own spread: routers alone make several percent.
    spread = max(PODS_SD, SD_PER_MEAN_DEVIATION_FACTOR * sum(within) / len(within))
    return first / second if second > 0 else 1.0, spread * (1 / len(old) + 1 / len(young)) ** 0.5


def too_good_to_be_true(look: Look) -> Sight | None:
    """Nearly all drafts accepted, at every position."""
    pooled = _drafts(look)
    if pooled is None:
        return None
    depth = sum(reached >= LEAST_DRAFTS for reached in pooled.reached)
    if any(pooled.accepted[i] < TOO_GOOD_SHARE * pooled.reached[i] for i in range(depth)):
        return None
    return Sight(
        f"Of {pooled.reached[0]:.0f} drafts, {_first(pooled):.1%} were accepted at each of "
        f"{counted(depth, 'position')}."
    )


def nothing_accepted(look: Look) -> Sight | None:
    """Drafts that are made for nothing."""
    pooled = _drafts(look)
    standing = Reason.NOTHING_ACCEPTED in look.standing
    if pooled is None or _first(pooled) > (
        SOMETHING_ACCEPTED_SHARE if standing else NOTHING_ACCEPTED_SHARE
    ):
        return None
    return Sight(
        f"Of {pooled.reached[0]:.0f} drafts, {_first(pooled):.1%} were accepted: the engine "
        "drafts, but for nothing."
    )


def _drafts(look: Look) -> Trials | None:
    """All drafts of the last minutes, if there are enough to say anything."""
    text = look.policy.evidence.text
    pooled = text.pooled() if isinstance(text, Survival) else Trials()
    return pooled if pooled.reached and pooled.reached[0] >= LEAST_DRAFTS else None


def _first(pooled: Trials) -> float:
    return pooled.accepted[0] / pooled.reached[0]


def long_context_rejected(look: Look) -> Sight | None:
    """Long contexts where drafts cost more than they give, though they pay at shorter ones."""
    standing = Reason.LONG_CONTEXT_REJECTED in look.standing
    certain = 0.0 if standing else LONG_Z
    contexts = look.snapshot.state.contexts
    for short, long in contexts.parted():
        drafts = short.counts.drafts + long.counts.drafts
        if min(short.counts.drafts, long.counts.drafts) < LEAST_DRAFTS:
            continue
        if long.counts.drafts < LONG_DRAFTS_SHARE * drafts:
            continue
        most = long.first + certain * long.error
        if most >= LONG_SHARE * (short.first - certain * short.error):
            continue
        if most >= LOSES_SHARE and not _loses(look, short + long, long, certain):
            continue
        return Sight(
            f"From {thousands(first_context(long.index))} tokens of context on, "
            f"{long.counts.drafts / drafts:.0%} of the drafts, the first draft token is accepted "
            f"{long.first:.0%} of the time (± {long.error:.1%}), at shorter contexts "
            f"{short.first:.0%}: there drafting costs more than it gives."
        )
    return None


def _loses(look: Look, whole: ContextSums, long: ContextSums, certain: float) -> bool:
    """Whether steps without drafts would be faster there, at every batch under load.

    By the step times that were measured, and by how much less is accepted there than of all drafts.
    """
    policy = look.policy
    gains = [
        policy.evidence.gain(bucket, depth, 0)
        for bucket in policy.shares
        if (depth := policy.depths[bucket])
    ]
    # The error of all that is accepted is that of the first token, in proportion.
    doubt = certain * long.error * max(1.0, (long.length - 1) / max(long.first, long.error))
    less = log((long.length + doubt) / whole.length)
    return bool(gains) and all(each is not None and each.upper() + less < 0 for each in gains)


def depth_mismatch(look: Look) -> Sight | None:
    """Engines that report the generation in force, yet count steps at other depths."""
    document = look.snapshot.whole or look.document
    for each in look.deltas:
        counters = look.snapshot.state.looks.get(each.pod)
        if counters is None or not counters.runs(document):
            continue  # it changed within the window
        schedule = document.for_pod(each.pod)
        steps = other = 0.0
        for cell, counts in each.cells.items():
            asked = depth_at(schedule, first_batch(cell.batch_le))
            steps += counts.steps
            other += counts.steps if cell.depth != asked else 0.0
        if steps >= LEAST_STEPS and other > OTHER_DEPTH_SHARE * steps:
            return Sight(
                f"{each.pod} runs generation {document.generation}, but {other / steps:.0%} of its "
                "steps verify another number of drafts than that schedule asks for."
            )
    return None


def speculation_slower(look: Look) -> Sight | None:
    """Depth 0 is better than all others, beyond doubt, at every batch under load."""
    policy = look.policy
    shares = policy.shares
    if not shares:
        return None
    losses: list[float] = []
    for bucket, share in shares.items():
        depth = policy.depths[bucket]
        present = policy.evidence.gain(bucket, depth, 0)
        if present is None or (depth and present.upper() > 0):
            return None  # the usual case, told without looking at the other depths
        gains = [
            gain
            for depth in range(1, policy.bounds.depths[-1] + 1)
            if (gain := policy.evidence.gain(bucket, depth, 0)) is not None
        ]
        if not gains or any(gain.upper() > 0 for gain in gains):
            return None
        losses.append(share * max(gain.mean for gain in gains))
    kept = " The tuner keeps depth 0 as long as this holds." if 0 in policy.bounds.depths else ""
    return Sight(
        "At every batch under load the engine would be faster without speculation, by "
        f"{-sum(losses) / sum(shares.values()):.1%} on average.{kept}"
    )
