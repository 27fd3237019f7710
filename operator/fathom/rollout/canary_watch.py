"""Which pod is the canary, and since when it is watched. Pure."""

from collections.abc import Iterable
from dataclasses import replace

from fathom.core.cluster.observed_pods import ObservedPod
from fathom.rollout.canary_trouble import restarts_of
from fathom.rollout.input import RolloutInput
from fathom.rollout.rollout import CanaryWatch


def canary_pod(pods: Iterable[ObservedPod], watch: CanaryWatch | None) -> ObservedPod | None:
    """The one that is watched, as long as it is there."""
    found = sorted(pods, key=lambda pod: (not pod.ready, pod.name))
    known = (pod for pod in found if watch is not None and pod.name == watch.pod)
    return next(known, found[0] if found else None)


def watched_on(before: CanaryWatch | None, pod: ObservedPod | None, now_s: float) -> CanaryWatch:
    """The watch of this pod; another pod than before bakes anew."""
    if pod is None:
        return _unready(before or CanaryWatch(""), now_s)
    watch = before if before is not None and before.pod == pod.name else None
    if watch is None:
        since_s = before.unready_since_s if before is not None else None
        since_s = now_s if since_s is None else since_s
        watch = CanaryWatch(pod.name, unready_since_s=since_s, uid=pod.metadata.uid)
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
    if generation >= document.generation:
        return replace(watch, generation=generation, behind_since_s=None)
    if watch.behind_since_s is not None and watch.generation == generation:
        return watch
    since_s = max(watch.ready_since_s, given.document_written_at_s)
    return replace(watch, generation=generation, behind_since_s=since_s)


def _come_back(watch: CanaryWatch, uid: str, now_s: float) -> CanaryWatch:
    """Of a pod under the name of an earlier one, as the leader of a restarted group is."""
    if not watch.uid:  # kept by a Fathom that did not look
        return replace(watch, uid=uid)
    return replace(_unready(watch, now_s), uid=uid, replaced=watch.replaced + 1)


def _unready(watch: CanaryWatch, now_s: float) -> CanaryWatch:
    """Of a pod that is gone: what comes in its place bakes from the beginning."""
    since_s = now_s if watch.unready_since_s is None else watch.unready_since_s
    return replace(watch, ready_since_s=None, unready_since_s=since_s, behind_since_s=None)
