"""The pods of Jobs: which still run, how a container ended, or why it has not begun. Pure."""

from collections.abc import Sequence
from typing import Final

from fathom.api import names
from fathom.cluster.observed import ObservedJob
from fathom.cluster.observed_pods import ObservedPod, Terminated

_ON_ITS_WAY: Final = frozenset({"", "ContainerCreating", "PodInitializing", "CrashLoopBackOff"})


def under_way(
    jobs: Sequence[ObservedJob],
    pods: Sequence[ObservedPod],
    component: str,
    now_s: float,
    *,
    but_for: str,
) -> str:
    """A Job that has not ended or, of one that is gone, such a pod, in words; empty: none.

    Args:
        jobs: the resource's.
        pods: the resource's.
        component: of the Jobs in question.
        now_s: Unix seconds.
        but_for: name of a Job that does not count; empty: all do.
    """
    for job in jobs:
        if job.component == component and job.name != but_for and not job.ended:
            return f"Job {job.name}"
    ours = [job.metadata for job in jobs if job.name == but_for]
    for pod in pods:
        ended = pod.finished or pod.lost(now_s)
        takes_part = pod.metadata.labels.get(names.LABEL_COMPONENT) == component
        if takes_part and not ended and not any(map(pod.belongs_to, ours)):
            return f"pod {pod.name}"
    return ""


def newest_pod(job: ObservedJob, pods: Sequence[ObservedPod], container: str) -> ObservedPod | None:
    """A pod whose container ended well before all others, then the one that was made last."""
    own = [pod for pod in pods if pod.belongs_to(job.metadata)]
    own.sort(key=lambda pod: _rank(pod, container))
    return own[-1] if own else None


def ended_well(pod: ObservedPod | None, container: str) -> Terminated | None:
    """How it ended, whatever goes on beside it; None: it has not, or not well."""
    ended = last_end(pod, container)
    return ended if ended is not None and ended.exit_code == 0 else None


def last_end(pod: ObservedPod | None, container: str) -> Terminated | None:
    """How it ended, well or not; None: it has not."""
    statuses = pod.status.container_statuses if pod else ()
    return next((each.state.terminated for each in statuses if each.name == container), None)


def why_not_begun(pod: ObservedPod | None) -> str:
    """What keeps a pod from starting, in Kubernetes' words; empty: nothing that is known.

    Never what a container has written: who runs there may write anything.
    """
    if pod is None or pod.finished:
        return ""
    if (found := pod.unscheduled) is not None:
        return f"pod {pod.name} finds no node: {found.message or found.reason}"
    statuses = (*pod.status.init_container_statuses, *pod.status.container_statuses)
    for waiting in (each.state.waiting for each in statuses):
        if waiting is not None and waiting.reason not in _ON_ITS_WAY:
            return f"pod {pod.name} does not start: {waiting.reason}: {waiting.message}"
    return ""


def _rank(pod: ObservedPod, container: str) -> tuple[bool, bool, float, str]:
    ended = ended_well(pod, container) is not None
    return (ended, not pod.terminating, pod.made_at_s or 0.0, pod.name)
