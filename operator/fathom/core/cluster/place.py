"""Whether a replica lacks a place that something else holds. Pure."""

from fathom.core.cluster.pod_trouble import Trouble, trouble_with_pod, trouble_with_workload
from fathom.core.cluster.snapshot import Objects

_QUOTA = "exceeded quota"
"""The API server's words where a ResourceQuota refuses a pod (plugin/pkg/admission/resourcequota in
Kubernetes)."""


def lacks_place(objects: Objects) -> Trouble | None:
    """What keeps a replica from a place that would be there if something else ended; None: nothing.

    A pod that ends frees its place for one that waits.
    """
    pods = sorted(objects.engines, key=lambda pod: pod.name)
    waiting = [pod for pod in pods if pod.unscheduled is not None]
    ending = [pod for pod in pods if pod.terminating and not pod.lost(objects.read_at_s)]
    if len(waiting) > len(ending):
        return trouble_with_pod(waiting[-1], objects.nodes)
    refused = (
        trouble_with_workload(each, objects.refused_pods.get(each.name, ""))
        for each in objects.workloads
    )
    return next((each for each in refused if each and _QUOTA in each.message), None)
