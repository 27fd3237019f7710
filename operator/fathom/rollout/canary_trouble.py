"""What ends a canary before it is judged: it crashes, does not start, or does not obey. Pure."""

from dataclasses import dataclass
from typing import Final

from fathom.api.conditions import Reason
from fathom.core.cluster.observed_pods import ObservedPod
from fathom.core.cluster.pod_trouble import Trouble, trouble_with_failed, trouble_with_pod
from fathom.core.counted import counted
from fathom.rollout.input import RolloutInput
from fathom.rollout.rollout import CanaryWatch, Rollout

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
            f"its workload could not be made {minutes}. Mend what refuses it (a policy, a webhook, "
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
        mend = "Mend what refuses them (a quota, a policy, a webhook) before it is tried again."
        return Trouble(refusal.reason, f"{refusal.message} {mend}")
    if pod is not None:
        return trouble_with_pod(pod)
    failed = (each for each in given.failed_pods if each.revision == rollout.revision)
    return trouble_with_failed(failed, given.now_s)


def restarts_of(pod: ObservedPod) -> int:
    """Of its engine, and of what has to end before that can start."""
    return pod.engine_restarts + pod.init_restarts
