"""When an alarm is raised, and when it is over. Pure.

Each check looks at what was learnt and says what it sees at this moment, or nothing. What is seen
for long enough stands as an alarm; what is not seen for long enough is over. An alarm never changes
depth by itself: depth follows what is measured, alarm or not.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Final

from fathom.api.conditions import Reason
from fathom.core.counted import counted
from fathom.core.depth import DepthDocument, depth_at
from fathom.core.measurement import PodDelta
from fathom.tuning.alarms.alarm import Alarm, AlarmKind, Watch
from fathom.tuning.buckets import first_batch
from fathom.tuning.estimate.acceptance import Acceptance, PodAcceptance
from fathom.tuning.estimate.survival import Survival
from fathom.tuning.interface import TuningSnapshot
from fathom.tuning.policy.policy import Policy

CLIFF: Final = 0.68
"""Acceptance below this share of the low end of the last day is a cliff: kinds of traffic that one
draft serves differ by less."""
RESTORED: Final = 0.85
"""Above this share it is over."""
CLIFF_POD: Final = 0.6
"""One pod below this share of the others' median has another draft, or a broken one."""
NORMAL_KNOWN_S: Final = 900.0
"""Seconds of normal acceptance without which nothing can be a cliff."""
MISMATCH_S: Final = 180.0
DECAY: Final = 0.05
"""Older replicas' acceptance below that of younger ones, relative."""
DECAY_Z: Final = 3.0
DECAY_S: Final = 1800.0
PODS_SD: Final = 0.01
"""Spread of acceptance between replicas of one age, relative, at least."""
MEAN_DEVIATION_TO_SD: Final = 1.25
"""√(π/2): a normal distribution's standard deviation over its mean absolute deviation."""
OLD_S: Final = 3600.0
"""An engine that runs for less is young, whatever the others' age."""
TOO_GOOD: Final = 0.995
"""No draft that differs from its target accepts so much; a draft that *is* its target does."""
NOTHING_BELOW: Final = 0.01
SOMETHING_ABOVE: Final = 0.02
"""Acceptance above which nothing is no longer what is accepted."""
SUSPICIOUS_S: Final = 600.0
LEAST_STEPS: Final = 100.0
OTHER_DEPTH_SHARE: Final = 0.2
"""Share of steps at another depth than asked."""
OTHER_DEPTH_S: Final = 300.0
NEVER_PAYS_S: Final = 2 * 3600.0
"""Seconds under traffic without any batch at which speculation pays."""
LEAST_DRAFTS: Final = 1000.0
OVER_S: Final = 300.0
"""How long an alarm's cause must be gone."""
FORGOTTEN_S: Final = 60.0
"""How long what was only suspected must be gone."""


@dataclass(frozen=True, slots=True)
class _Sight:
    """What a check sees at this moment."""

    kind: AlarmKind
    reason: Reason
    message: str
    recommendation: str
    needed_s: float
    older_than_s: float | None = None


def watched(
    watches: Sequence[Watch],
    *,
    snapshot: TuningSnapshot,
    document: DepthDocument,
    deltas: Sequence[PodDelta],
    policy: Policy,
    acceptance: Acceptance,
) -> tuple[Watch, ...]:
    """The watches after one more window with data; without data nothing is learnt."""
    if not any(each.steps for each in deltas):
        return tuple(watches)
    standing = {each.reason for each in watches if each.raised_at_s}
    text = policy.evidence.text
    # What was never verified counts as rejected: where drafts are cut, acceptance says nothing.
    by_acceptance = (
        (
            _mismatch(acceptance, standing=Reason.ACCEPTANCE_CLIFF in standing),
            _pod_mismatch(acceptance),
            _decay(acceptance, snapshot.now_s),
            _suspicious(text, standing=Reason.NOTHING_ACCEPTED in standing),
        )
        if isinstance(text, Survival)
        else ()
    )
    # Where depth is not live, none was asked for, and none but the user's is tried.
    by_depth = (
        (_other_depth(snapshot, document, deltas), _never_pays(policy))
        if snapshot.live_refusal is None
        else ()
    )
    sights = (*by_acceptance, *by_depth)
    return _carried_on(watches, [each for each in sights if each], snapshot.now_s)


def standing(watches: Iterable[Watch]) -> tuple[Alarm, ...]:
    """The alarms that stand."""
    return tuple(each.alarm() for each in watches if each.raised_at_s)


def _carried_on(
    watches: Sequence[Watch], sights: Sequence[_Sight], now_s: float
) -> tuple[Watch, ...]:
    by_kind = {each.kind: each for each in reversed(sights)}
    result = [each for kind in AlarmKind if (each := _next(watches, by_kind, kind, now_s))]
    return tuple(result)


def _next(
    watches: Sequence[Watch], sights: dict[AlarmKind, _Sight], kind: AlarmKind, now_s: float
) -> Watch | None:
    before = next((each for each in watches if each.kind is kind), None)
    sight = sights.get(kind)
    if sight is None:
        # One good window does not end an alarm, nor may one bad window a day apart begin one.
        quiet_s = OVER_S if before is not None and before.raised_at_s else FORGOTTEN_S
        return before if before is not None and now_s - before.last_seen_s < quiet_s else None
    first_seen_s = before.first_seen_s if before is not None else now_s
    watch = Watch(
        kind=kind,
        reason=sight.reason,
        message=sight.message,
        recommendation=sight.recommendation,
        first_seen_s=first_seen_s,
        last_seen_s=now_s,
        raised_at_s=before.raised_at_s if before is not None else 0.0,
        older_than_s=sight.older_than_s,
    )
    if not watch.raised_at_s and now_s - first_seen_s >= sight.needed_s:
        watch = replace(watch, raised_at_s=now_s)
    return watch


def _mismatch(acceptance: Acceptance, *, standing: bool) -> _Sight | None:
    normal, level = acceptance.normal, acceptance.level
    if normal is None or level is None or acceptance.known_s < NORMAL_KNOWN_S:
        return None
    if level >= normal * (RESTORED if standing else CLIFF):
        return None
    if acceptance.is_known_traffic and not standing:
        return None
    return _Sight(
        AlarmKind.DRAFT_MISMATCH,
        Reason.ACCEPTANCE_CLIFF,
        f"The first draft token is accepted {level:.0%} of the time; over the last day it was "
        f"{normal:.0%} or more nine tenths of the time.",
        "Check that the draft belongs to the target's present weights and chat template, and "
        "whether a new kind of traffic arrived that the draft was not trained for. Depth follows "
        "what is measured meanwhile.",
        MISMATCH_S,
    )


def _pod_mismatch(acceptance: Acceptance) -> _Sight | None:
    pods = [(each, each.ratio) for each in acceptance.pods if each.drafts >= LEAST_DRAFTS]
    for pod, ratio in pods:
        others = [r for other, r in pods if other is not pod and r is not None]
        if ratio is not None and others and ratio < CLIFF_POD * median(others):
            return _Sight(
                AlarmKind.DRAFT_MISMATCH,
                Reason.ONE_POD_DIFFERS,
                f"{pod.pod} accepts {ratio / median(others):.0%} of what the other pods do.",
                f"Compare the draft and its revision in the log of {pod.pod} with another pod's; "
                "delete the pod to load it again.",
                MISMATCH_S,
            )
    return None


def _decay(acceptance: Acceptance, now_s: float) -> _Sight | None:
    """Old replicas against young ones: the same traffic, so age is what differs."""
    known = [
        (now_s - each.started_at_s, each)
        for each in acceptance.pods
        if each.started_at_s > 0 and each.drafts >= LEAST_DRAFTS and now_s - each.at_s < OLD_S
    ]
    if not known:
        return None
    youngest_s = min(age for age, _ in known)
    split_s = max(OLD_S, 2 * youngest_s)
    old = [each for age, each in known if age >= split_s]
    young = [each for age, each in known if age < split_s]
    if not old or not young:
        return None
    ratio, error = _compared(old, young)
    if ratio > 1 - DECAY or (1 - ratio) < DECAY_Z * error:
        return None
    names = ", ".join(each.pod for each in old)
    return _Sight(
        AlarmKind.ACCEPTANCE_DECAY,
        Reason.OLDER_REPLICAS_ACCEPT_LESS,
        f"{names} run for more than {split_s / 3600:.1f} h and accept {1 - ratio:.0%} less than "
        "replicas that started later, under the same traffic.",
        "Restart the older replicas one at a time, or let rollout.refresh: Auto do so.",
        DECAY_S,
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
    spread = max(PODS_SD, MEAN_DEVIATION_TO_SD * sum(within) / len(within))
    return first / second if second > 0 else 1.0, spread * (1 / len(old) + 1 / len(young)) ** 0.5


def _suspicious(survival: Survival, *, standing: bool) -> _Sight | None:
    pooled = survival.pooled()
    if not pooled.reached or pooled.reached[0] < LEAST_DRAFTS:
        return None
    depth = sum(reached >= LEAST_DRAFTS for reached in pooled.reached)
    first = pooled.accepted[0] / pooled.reached[0]
    if all(pooled.accepted[i] >= TOO_GOOD * pooled.reached[i] for i in range(depth)):
        return _Sight(
            AlarmKind.SUSPICIOUS_ACCEPTANCE,
            Reason.TOO_GOOD_TO_BE_TRUE,
            f"Of {pooled.reached[0]:.0f} drafts, {first:.1%} were accepted at each of "
            f"{counted(depth, 'position')}.",
            "Check that the traffic is real and not one repeated prompt, and that the draft is not "
            "the target itself.",
            SUSPICIOUS_S,
        )
    if first <= (SOMETHING_ABOVE if standing else NOTHING_BELOW):
        return _Sight(
            AlarmKind.SUSPICIOUS_ACCEPTANCE,
            Reason.NOTHING_ACCEPTED,
            f"Of {pooled.reached[0]:.0f} drafts, {first:.1%} were accepted: the engine drafts, but "
            "for nothing.",
            "Check that draft.method is what the draft was trained as, and that the draft belongs "
            "to this target.",
            SUSPICIOUS_S,
        )
    return None


def _other_depth(
    snapshot: TuningSnapshot, document: DepthDocument, deltas: Sequence[PodDelta]
) -> _Sight | None:
    """Engines that report the generation in force, yet count steps at other depths."""
    looks = snapshot.state.looks
    for each in deltas:
        look = looks.get(each.pod)
        if look is None or look.depth_generation != document.generation:
            continue  # it changed within the window
        schedule = document.for_pod(each.pod)
        steps = other = 0.0
        for cell, counts in each.cells.items():
            asked = depth_at(schedule, first_batch(cell.batch_le))
            steps += counts.steps
            other += counts.steps if cell.depth != asked else 0.0
        if steps >= LEAST_STEPS and other > OTHER_DEPTH_SHARE * steps:
            return _Sight(
                AlarmKind.SUSPICIOUS_ACCEPTANCE,
                Reason.OTHER_DEPTH_THAN_ASKED,
                f"{each.pod} runs generation {document.generation}, but {other / steps:.0%} of its "
                "steps verify another number of drafts than that schedule asks for.",
                "Look for another part that shortens drafts (a grammar, "
                "max_model_len), and in the pod's log for 'fathom'.",
                OTHER_DEPTH_S,
            )
    return None


def _never_pays(policy: Policy) -> _Sight | None:
    """Depth 0 is better than all others, beyond doubt, at every batch under load."""
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
    allowed = 0 in policy.bounds.depths
    return _Sight(
        AlarmKind.SPECULATION_NEVER_PAYS,
        Reason.SLOWER_THAN_WITHOUT,
        f"At every batch under load the engine would be faster without speculation, by "
        f"{-sum(losses) / sum(shares.values()):.1%} on average.",
        "The tuner keeps depth 0 as long as this holds. Set speculation.drafting: Disabled to save "
        "the draft's work as well; a draft trained on this traffic may change it."
        if allowed
        else "Set speculation.minTokens: 0 to let the tuner stop speculating, or "
        "speculation.drafting: Disabled, which saves the draft's work as well; or use another "
        "draft.",
        NEVER_PAYS_S,
    )
