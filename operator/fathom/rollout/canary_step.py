"""One step of a rollout that has a canary: watched, compared, promoted or rolled back. Pure."""

from dataclasses import dataclass, replace
from typing import Final

from fathom.api.conditions import Reason
from fathom.cluster.events import Event, EventReason, Severity
from fathom.cluster.observed_pods import ObservedPod
from fathom.rollout.canary_health import canary_pod, failure_of, seen_obeying, watched_on
from fathom.rollout.canary_verdict import (
    LONGEST_BAKE,
    Answer,
    fails,
    so_far,
    verdict_alone,
    verdict_on,
)
from fathom.rollout.comparison import HAS, comparison_of
from fathom.rollout.input import CanaryWindow, RolloutInput
from fathom.rollout.rollout import CanaryWatch, Rollout, Stage
from fathom.text import counted

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
            f"The replica {HAS[rollout.compares]}, of revision {rollout.revision}, is given up, "
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
    if alone(given) and not given.asked(rollout.stable):
        verdict = verdict_alone(rollout.evidence)
    else:
        verdict = verdict_on(rollout.evidence, baked_s, given.settings.bake_s)
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
        return RolloutStep(replace(rollout, reason=Reason.COMPARING, message=str(before)))
    found = comparison_of(
        rollout.evidence,
        rollout.compares,
        baked_s=baked_s,
        bake_s=bake_s,
        now_s=given.now_s,
        doubted=before is not None,
    )
    if found is None or (before is not None and not found.settled):
        # What could not be told before stands as it was told.
        message = str(before) if before else f"{so_far(rollout.evidence)}: not certain yet."
        if baked_s < bake_s:
            left = max(1, round((bake_s - baked_s) / 60))
            message = f"{so_far(rollout.evidence)}; compared for {counted(left, 'more minute')}."
        message = f"pod {pod.name}: {message}"
        return RolloutStep(replace(rollout, reason=Reason.COMPARING, message=message))
    sentence = f"Pod {pod.name}, {HAS[rollout.compares]}, compared with the others: {found}"
    after = replace(rollout, compared=found, reason=Reason.COMPARING, message=str(found))
    return RolloutStep(after, (normal(EventReason.COMPARED, sentence),))


def _seen(rollout: Rollout, watch: CanaryWatch, given: RolloutInput) -> Rollout:
    evidence = rollout.evidence
    if given.window is not None and _counts(given.window, watch, given):
        evidence = evidence.updated(given.window.canary, given.window.stable)
    return replace(rollout, watch=watch, evidence=evidence)


def _counts(window: CanaryWindow, watch: CanaryWatch, given: RolloutInput) -> bool:
    if watch.ready_since_s is None or watch.unready_since_s is not None:
        return False
    baked_s, bake_s = given.now_s - watch.ready_since_s, given.settings.bake_s
    # An arm stays for months, and a fleet at rest is not written about.
    return baked_s >= min(WARM_UP_S, bake_s / 4) and (
        baked_s < LONGEST_BAKE * bake_s or window.is_busy
    )
