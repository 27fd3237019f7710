"""One step of a rollout with a canary: placed, watched, compared, promoted, rolled back. Pure."""

import math
from dataclasses import dataclass, replace
from typing import Final

from fathom.api.choices import Compares
from fathom.api.conditions import Reason
from fathom.cluster.events import Event, EventReason, Severity
from fathom.cluster.observed_pods import ObservedPod
from fathom.rollout.canary_evidence import CanaryContrast
from fathom.rollout.canary_health import canary_pod, failure_of, seen_obeying, watched_on
from fathom.rollout.canary_verdict import (
    LONGEST_BAKE,
    Answer,
    fails,
    so_far,
    verdict_alone,
    verdict_on,
)
from fathom.rollout.comparison import comparison_of
from fathom.rollout.input import CanaryWindow, RolloutInput, RolloutSettings
from fathom.rollout.replicas import ReplicaBounds
from fathom.rollout.rollout import CanaryWatch, Rollout, Stage
from fathom.text import counted
from fathom.times import rfc3339

WARM_UP_S: Final = 120.0
"""After a canary became ready its prefix cache is cold: what it counts so early is left out."""


@dataclass(frozen=True, slots=True)
class RolloutStep:
    rollout: Rollout | None
    """As it is now; None: none is under way."""
    events: tuple[Event, ...] = ()


def alone(given: RolloutInput) -> bool:
    """Whether the canary takes the place of the only replica."""
    return given.settings.replicas <= 1 and not given.settings.max_surge


def promotion(rollout: Rollout, reason: Reason, message: str, given: RolloutInput) -> RolloutStep:
    promoted = rollout.entered(Stage.PROMOTED, reason, message, given.now_s)
    sentence = f"Revision {rollout.revision} replaces {rollout.stable} everywhere: {message}"
    return RolloutStep(promoted, (normal(EventReason.PROMOTED, sentence),))


def rolled_back(rollout: Rollout, reason: Reason, message: str, given: RolloutInput) -> RolloutStep:
    # Who asked while nobody knew of a veto has asked for this canary, and for no other.
    asked = replace(rollout, retry=given.retry)
    over = asked.entered(Stage.ROLLED_BACK, reason, message, given.now_s)
    if rollout.arm:
        sentence = (
            f"The replica {rollout.has}, of revision {rollout.revision}, is given up, "
            f"and {rollout.stable} takes its place: {message}"
        )
        return RolloutStep(over, (Event(Severity.WARNING, reason, sentence),))
    # Told by condition Degraded.
    return RolloutStep(over)


def normal(reason: EventReason, message: str) -> Event:
    return Event(Severity.NORMAL, reason, message)


def watched_canary(rollout: Rollout, given: RolloutInput) -> RolloutStep:
    pod = canary_pod(given.of_revision(rollout.revision), rollout.watch)
    watch = seen_obeying(watched_on(rollout.watch, pod, given.now_s), given)
    failure = failure_of(rollout, watch, pod, given)
    seen = _seen(rollout, watch, given)
    if failure is not None:
        return rolled_back(seen, failure.reason, failure.message, given)
    if pod is None or watch.ready_since_s is None or not pod.ready:
        message = f"the canary{f', pod {pod.name},' if pod else ''} is starting."
        return RolloutStep(replace(seen, reason=Reason.CANARY_STARTING, message=message))
    baked_s = given.now_s - watch.ready_since_s
    return (_compared if rollout.arm else _judged)(seen, pod, baked_s, given)


def _judged(rollout: Rollout, pod: ObservedPod, baked_s: float, given: RolloutInput) -> RolloutStep:
    """Judge a canary that serves: it is promoted, goes back, or stays watched."""
    if awaited := _awaited_of_depth(rollout.watch, given):
        message = f"pod {pod.name} {awaited}."
        return RolloutStep(replace(rollout, reason=Reason.CANARY_STARTING, message=message))
    if not given.settings.bake_s:
        return promotion(rollout, Reason.CANARY_AS_GOOD, "it became ready.", given)
    evidence = rollout.evidence
    if rollout.draft:
        # Where steps are longer, a prompt waits longer for the next one: that is its depth, which
        # the tuner chooses by other things. Who adopted the draft was told.
        evidence = replace(evidence, ttft_tail=CanaryContrast())
    if alone(given) and not given.asked(rollout.stable):
        verdict = verdict_alone(evidence)
    else:
        verdict = verdict_on(evidence, baked_s, given.settings.bake_s)
    match verdict.answer:
        case Answer.PROMOTE:
            return promotion(rollout, verdict.reason, verdict.message, given)
        case Answer.ROLL_BACK:
            return rolled_back(rollout, verdict.reason, f"{pod.name}: {verdict.message}", given)
        case Answer.WATCH:
            message = f"pod {pod.name}: {verdict.message}"
            return RolloutStep(replace(rollout, reason=verdict.reason, message=message))


def _awaited_of_depth(watch: CanaryWatch | None, given: RolloutInput) -> str:
    """What a canary whose depth is live still has to show of it, in words; empty: nothing.

    One that nobody has read yet has shown nothing. Nobody waits for that longer than a canary warms
    up: who wants no comparison may have no metrics.
    """
    if not given.live or watch is None or watch.generation:
        return ""
    if watch.behind_since_s is not None:
        return "has not had any depth in force yet"
    ready_s = watch.ready_since_s
    unread = given.document is not None and watch.pod not in given.counters
    if unread and ready_s is not None and given.now_s - ready_s < WARM_UP_S:
        return "has not reported yet which depth it has in force"
    return ""


def _compared(
    rollout: Rollout, pod: ObservedPod, baked_s: float, given: RolloutInput
) -> RolloutStep:
    """Judge a variant that serves: it goes back if its requests fail, and otherwise stays."""
    if (failing := fails(rollout.evidence)) is not None:
        return rolled_back(rollout, failing.reason, f"{pod.name}: {failing.message}", given)
    before, bake_s = rollout.compared, given.settings.bake_s
    if before is not None and before.settled:
        return RolloutStep(replace(rollout, reason=Reason.COMPARING, message=before.finding))
    found = comparison_of(
        rollout.evidence,
        rollout.compares,
        baked_s=baked_s,
        bake_s=bake_s,
        now_s=given.now_s,
        doubted=before is not None,
        own_depth=given.own_depth,
    )
    if found is None or (before is not None and not found.settled):
        # What could not be told before stands as it was told.
        message = before.finding if before else f"{so_far(rollout.evidence)}: not certain yet."
        if baked_s < bake_s:
            left = max(1, round((bake_s - baked_s) / 60))
            message = f"{so_far(rollout.evidence)}; compared for {counted(left, 'more minute')}."
        message = f"pod {pod.name}: {message}"
        return RolloutStep(replace(rollout, reason=Reason.COMPARING, message=message))
    sentence = f"Pod {pod.name}, {rollout.has}, compared with the others: {found.finding}"
    after = replace(rollout, compared=found, reason=Reason.COMPARING, message=found.finding)
    return RolloutStep(after, (normal(EventReason.COMPARED, sentence),))


def _seen(rollout: Rollout, watch: CanaryWatch, given: RolloutInput) -> Rollout:
    evidence = rollout.evidence
    if given.window is not None and _counts(given.window, watch, given):
        window, own = given.window, bool(rollout.draft)
        evidence = evidence.updated(window.canary, window.stable, at_own_depth=own)
    return replace(rollout, watch=watch, evidence=evidence)


def _counts(window: CanaryWindow, watch: CanaryWatch, given: RolloutInput) -> bool:
    if watch.ready_since_s is None or watch.unready_since_s is not None:
        return False
    baked_s, bake_s = given.now_s - watch.ready_since_s, given.settings.bake_s
    if not given.depth_settled and baked_s < bake_s:
        return False
    # An arm stays for months, and a fleet at rest is not written about.
    return baked_s >= min(WARM_UP_S, bake_s / 4) and (
        baked_s < LONGEST_BAKE * bake_s or window.is_busy
    )


@dataclass(frozen=True, slots=True)
class NoRoom:
    """That there is no room for the canary, for now.

    A surge pod is asked for, and the scheduler's answer is the answer. Where no node has room for
    so long as the spec says, the canary waits, or takes the place of a replica.
    """

    takes: bool
    """Whether it takes the place of a replica now; else it waits."""
    reason: Reason
    message: str


def no_room(rollout: Rollout, given: RolloutInput) -> NoRoom | None:
    """What becomes of a canary that has no place; None: it has one, or can only be given up.

    Args:
        rollout: as it is.
        given: this pass's view.
    """
    settings, found = given.settings, given.unplaced.get(rollout.revision)
    if rollout.stage is Stage.CANARY and given.blocked:
        return NoRoom(takes=False, reason=Reason.ROLLOUT_BLOCKED, message=given.blocked)
    asks = rollout.stage is Stage.CANARY and settings.max_surge and not rollout.no_room
    if not asks or found is None or not (settings.waits or _may_take(rollout, given)):
        return None
    until_s = max(rollout.began_at_s, found.since_s or 0.0) + settings.capacity_s
    if given.now_s >= until_s and not settings.waits:
        message = f"no node has capacity for one more: {found.trouble.message}"
        return NoRoom(takes=True, reason=Reason.CANARY_STARTING, message=message)
    trial = given.compares is Compares.DRAFT
    why = "a draft on trial takes no replica's place" if trial else "rollout.whenNoCapacity is Wait"
    then = (
        f"It waits for capacity, since {why}."
        if settings.waits
        else f"If that is so until {rfc3339(until_s)}, it takes the place of a replica: "
        f"{cost(rollout.stable, given)}."
    )
    # Nobody misses a draft on trial: that it has no place is no trouble.
    open_yet = given.now_s < until_s or trial
    return NoRoom(
        takes=False,
        reason=Reason.AWAITING_CAPACITY if open_yet else Reason.NO_CAPACITY,
        message="the canary asks for capacity in addition to all replicas. "
        f"{found.trouble.message} {then}",
    )


def cost(stable: str, given: RolloutInput) -> str:
    """What it costs that a canary takes the place of a replica, in words."""
    settings = given.settings
    left = ReplicaBounds(
        replicas=settings.replicas, max_unavailable=settings.max_unavailable, max_surge=0
    ).beside(1)
    # What took longer was ready before, and came back.
    if given.start_s is None or given.start_s > settings.patience_s:
        allowed = counted(settings.startup_s / 60, "minute")
        long = f"while it starts (spec.engine.startupMinutes allows {allowed})"
    else:
        long = f"for about {counted(max(1, math.ceil(given.start_s / 60)), 'minute')}"
    return f"capacity {min(left, given.ready(stable))} of {settings.replicas} {long}"


def takes_at_once(settings: RolloutSettings) -> bool:
    """Whether a canary takes the place of a replica without asking for room first."""
    return bool(settings.replicas and settings.max_unavailable and not settings.max_surge)


def _may_take(rollout: Rollout, given: RolloutInput) -> bool:
    """Whether a replica may be missing; of an arm one has to stay, to be compared with."""
    settings = given.settings
    return settings.max_unavailable > 0 and not (rollout.arm and settings.replicas <= 1)
