"""What ends a canary before it is judged: it crashes, does not start, or does not obey. Pure.

They stand still in a pause, and while nobody looks at the canary, as when the operator is away or
cannot reach the API server: what nobody watched is no bake, and uses up nobody's patience.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final

from fathom.api.conditions import Reason
from fathom.cluster.observed_pods import ObservedPod
from fathom.cluster.pod_failures import Trouble, trouble_with_failed, trouble_with_pod
from fathom.rollout.input import RolloutInput, RolloutSettings
from fathom.rollout.rollout import CanaryWatch, Rollout, Stage
from fathom.text import counted

CRASHES: Final = 3
"""Restarts before it was ever ready; one or two can be a download that broke off."""
IMAGE_S: Final = 600.0
"""That an image may fail to be pulled: registries have bad minutes."""
TOGETHER_S: Final = 300.0
"""Between the ends of engines that one cause has ended."""
OBEY_S: Final = 300.0
"""After a depth document was written, until which every live engine has it or a newer one."""
PATIENCES: Final = 3.0
"""Times a canary's patience, after which one that never settles is given up, whatever it does."""
UNWATCHED_SHARE: Final = 0.15
"""Share of a canary's time that may go by after a check: so long a reconcile may take, or fail."""


@dataclass(frozen=True, slots=True)
class Failure:
    reason: Reason
    message: str


def failure_of(
    rollout: Rollout, watch: CanaryWatch, pod: ObservedPod | None, given: RolloutInput
) -> Failure | None:
    """Why the canary is given up; None: not yet, or not at all.

    Args:
        rollout: in stage Canary.
        watch: of its pod.
        pod: the canary; None: it does not exist (yet, or any more).
        given: this pass's view.
    """
    checks = (
        _crashed(rollout, watch, pod, given),
        _no_image(watch, pod, given),
        _not_obeying(watch, given),
        _too_slow(rollout, watch, pod, given),
        _endless(rollout, given),
    )
    return next((each for each in checks if each is not None), None)


def _crashed(
    rollout: Rollout, watch: CanaryWatch, pod: ObservedPod | None, given: RolloutInput
) -> Failure | None:
    if pod is None:
        return None
    if watch.replaced >= CRASHES:
        return Failure(
            Reason.CANARY_CRASHED,
            f"the group of pod {pod.name} was restarted {counted(watch.replaced, 'time')}: see the "
            "logs of its workers as well.",
        )
    restarts = restarts_of(pod)
    served = watch.ready_since_s is not None
    if restarts < (watch.restarts + 1 if served else CRASHES):
        return None
    if served and restarts == watch.restarts + 1 and _all_ended(rollout, pod, given):
        return None
    trouble = _trouble(rollout, pod, given)
    said = f": {trouble.message}" if trouble else "."
    when = (
        "after it had become ready"
        if served
        else f"{counted(restarts, 'time')} before it was ready"
    )
    return Failure(Reason.CANARY_CRASHED, f"pod {pod.name} crashed {when}{said}")


def _all_ended(rollout: Rollout, pod: ObservedPod, given: RolloutInput) -> bool:
    """Whether every stable engine ended when the canary's did: a power cut, a driver, a host."""
    own, stable = pod.engine_ended_at_s, given.of_revision(rollout.stable)
    if own is None or not stable:
        return False
    ends = [each.engine_ended_at_s for each in stable]
    return all(end is not None and abs(end - own) <= TOGETHER_S for end in ends)


def _no_image(watch: CanaryWatch, pod: ObservedPod | None, given: RolloutInput) -> Failure | None:
    trouble = trouble_with_pod(pod) if pod is not None else None
    if trouble is None or trouble.reason is not Reason.IMAGE_UNAVAILABLE:
        return None
    if given.now_s - (watch.unready_since_s or given.now_s) < IMAGE_S:
        return None
    return Failure(trouble.reason, trouble.message)


def _not_obeying(watch: CanaryWatch, given: RolloutInput) -> Failure | None:
    since_s = watch.behind_since_s
    if not given.live or since_s is None or given.now_s - since_s < OBEY_S:
        return None
    if watch.pod not in given.counters:
        return None  # who cannot be read now may have obeyed meanwhile
    return Failure(
        Reason.DEPTH_NOT_OBEYED,
        f"the engine of pod {watch.pod} does not have the depth in force that was written for it "
        f"{counted((given.now_s - since_s) / 60, 'minute')} ago: look for depth rejections and "
        "hook errors on its /metrics, and at its log.",
    )


def _too_slow(
    rollout: Rollout, watch: CanaryWatch, pod: ObservedPod | None, given: RolloutInput
) -> Failure | None:
    if watch.unready_since_s is None:
        return None
    waited_s = given.now_s - watch.unready_since_s
    if waited_s < given.settings.patience_s:
        return None
    minutes = f"within {counted(waited_s / 60, 'minute')}"
    if (trouble := _trouble(rollout, pod, given)) is not None:
        return Failure(trouble.reason, f"not ready {minutes}: {trouble.message}")
    if all(each.revision != rollout.revision for each in given.workloads):
        return Failure(
            Reason.CHILD_REFUSED,
            f"its workload could not be made {minutes}. Fix what refuses it (a policy, a webhook, "
            "a quota) before it is tried again.",
        )
    if pod is None:
        return Failure(Reason.CANARY_NOT_READY, f"its pod did not come into being {minutes}.")
    return Failure(
        Reason.CANARY_NOT_READY,
        f"pod {pod.name} did not become ready {minutes}: see its log, or raise "
        "spec.engine.startupMinutes.",
    )


def _endless(rollout: Rollout, given: RolloutInput) -> Failure | None:
    if rollout.compared is not None:
        return None
    longest_s = PATIENCES * (given.settings.patience_s + given.settings.bake_s)
    if given.now_s - rollout.began_at_s < longest_s:
        return None
    return Failure(
        Reason.CANARY_NOT_READY,
        f"after {longest_s / 3600:.1f} hours no canary has stayed long enough to be judged: its "
        "pods come and go.",
    )


def _trouble(rollout: Rollout, pod: ObservedPod | None, given: RolloutInput) -> Trouble | None:
    """Why it does not serve."""
    # First, since a leader fails where its workers are refused: that is the cause.
    refusal = given.refusal(rollout.revision)
    if refusal is not None:
        mend = "Fix what refuses them (a quota, a policy, a webhook) before it is tried again."
        return Trouble(refusal.reason, f"{refusal.message} {mend}")
    if pod is not None:
        return trouble_with_pod(pod)
    failed = (each for each in given.failed_pods if each.revision == rollout.revision)
    return trouble_with_failed(failed, given.now_s)


def restarts_of(pod: ObservedPod) -> int:
    """Restarts of its engine, and of what has to end before that can start."""
    return pod.engine_restarts + pod.init_restarts


def canary_pod(pods: Iterable[ObservedPod], watch: CanaryWatch | None) -> ObservedPod | None:
    """The one that is watched, as long as it is there."""
    found = sorted(pods, key=lambda pod: (not pod.ready, pod.name))
    known = (pod for pod in found if watch is not None and pod.name == watch.pod)
    return next(known, found[0] if found else None)


def watched_on(before: CanaryWatch | None, pod: ObservedPod | None, now_s: float) -> CanaryWatch:
    """The watch of this pod; another pod than before bakes again."""
    if pod is None:
        return _unready(before or CanaryWatch(pod=""), now_s)
    watch = before if before is not None and before.pod == pod.name else None
    if watch is None:
        since_s = before.unready_since_s if before is not None else None
        since_s = now_s if since_s is None else since_s
        watch = CanaryWatch(pod=pod.name, unready_since_s=since_s, uid=pod.metadata.uid)
    elif watch.uid != pod.metadata.uid:
        watch = _come_back(watch, pod.metadata.uid, now_s)
    if not pod.ready:
        since_s = now_s if watch.unready_since_s is None else watch.unready_since_s
        return replace(watch, unready_since_s=since_s)
    if watch.ready_since_s is None:
        restarts = restarts_of(pod)
        return replace(watch, ready_since_s=now_s, unready_since_s=None, restarts=restarts)
    # What was down for a while has baked that much less.
    down_s = 0.0 if watch.unready_since_s is None else now_s - watch.unready_since_s
    return replace(watch, ready_since_s=watch.ready_since_s + down_s, unready_since_s=None)


def seen_obeying(watch: CanaryWatch, given: RolloutInput) -> CanaryWatch:
    """With the depth that its engine has in force.

    A newer document does not restart its patience: it is no less behind for that.
    """
    counters, document = given.counters.get(watch.pod), given.document
    if not given.live or watch.ready_since_s is None or counters is None or document is None:
        return watch
    generation = counters.depth_generation
    if generation > document.generation or counters.follows(document):
        return replace(watch, generation=generation, behind_since_s=None)
    if watch.behind_since_s is not None and watch.generation == generation:
        return watch
    since_s = max(watch.ready_since_s, given.document_written_at_s)
    return replace(watch, generation=generation, behind_since_s=since_s)


def _come_back(watch: CanaryWatch, uid: str, now_s: float) -> CanaryWatch:
    """Watch of a pod under the name of an earlier one, as the leader of a restarted group is."""
    if not watch.uid:  # kept by a Fathom that did not look
        return replace(watch, uid=uid)
    return replace(_unready(watch, now_s), uid=uid, replaced=watch.replaced + 1)


def _unready(watch: CanaryWatch, now_s: float) -> CanaryWatch:
    """Watch of a pod that is gone: what comes in its place bakes from the beginning."""
    since_s = now_s if watch.unready_since_s is None else watch.unready_since_s
    return replace(watch, ready_since_s=None, unready_since_s=since_s, behind_since_s=None)


def not_ahead(rollout: Rollout, now_s: float) -> Rollout:
    """With nothing later than now: a clock that is set back makes nobody wait for hours."""
    if rollout.began_at_s > now_s:
        rollout = replace(rollout, began_at_s=now_s)
    if rollout.paused_at_s is not None and rollout.paused_at_s > now_s:
        rollout = replace(rollout, paused_at_s=now_s)
    watch = rollout.watch
    if watch is None:
        return rollout
    capped = _at_each(watch, lambda at_s: min(at_s, now_s))
    return rollout if capped == watch else replace(rollout, watch=capped)


def standing_still(rollout: Rollout, now_s: float) -> Rollout:
    """Standing still, for as long as it is held."""
    return rollout if rollout.paused_at_s else replace(rollout, paused_at_s=now_s)


def unwatched(
    rollout: Rollout, looked_at_s: float | None, settings: RolloutSettings, now_s: float
) -> Rollout:
    """Standing still since soon after the last look at a canary, if that was too long ago."""
    # An arm that was compared stays for months, and no time decides about it.
    awaited = rollout.stage is Stage.CANARY and rollout.compared is None
    if not awaited or rollout.paused_at_s is not None:
        return rollout
    serves = rollout.watch is not None and rollout.watch.unready_since_s is None
    # One without a bake only waits until it obeys.
    given_s = settings.bake_s or OBEY_S if serves else settings.patience_s
    until_s = _last_look_s(rollout, looked_at_s) + UNWATCHED_SHARE * given_s
    return standing_still(rollout, until_s) if until_s < now_s else rollout


def _last_look_s(rollout: Rollout, looked_at_s: float | None) -> float:
    """The last that is known: what began was seen to begin."""
    known = [rollout.began_at_s, looked_at_s]
    if rollout.watch is not None:
        known += [rollout.watch.ready_since_s, rollout.watch.unready_since_s]
    return max(at_s for at_s in known if at_s is not None)


def resumed(rollout: Rollout, now_s: float) -> Rollout:
    """With every clock as far as it was when they were stopped."""
    if rollout.paused_at_s is None:
        return rollout
    paused_s = now_s - rollout.paused_at_s
    watch = rollout.watch
    if watch is not None:
        watch = _at_each(watch, lambda at_s: at_s + paused_s)
    began_at_s = rollout.began_at_s + paused_s
    return replace(rollout, paused_at_s=None, began_at_s=began_at_s, watch=watch)


def _at_each(watch: CanaryWatch, moved: Callable[[float], float]) -> CanaryWatch:
    """With every clock that runs moved."""

    def at(since_s: float | None) -> float | None:
        return None if since_s is None else moved(since_s)

    return replace(
        watch,
        ready_since_s=at(watch.ready_since_s),
        unready_since_s=at(watch.unready_since_s),
        behind_since_s=at(watch.behind_since_s),
    )
