"""Asks the pod that fetches weights how far it is."""

from fathom.adapters.ports import FetchPort, PodEndpoint
from fathom.core.cluster.observed_pods import ObservedPod
from fathom.core.cluster.snapshot import Objects
from fathom.fetch.progress import FetchProgress
from fathom.fetch.standing import FetchStanding
from fathom.reconcile.fetch_findings import FetchFindings, asks_a_pod, fetch_findings
from fathom_fetch.shown import PORT


async def look_at_fetch(
    port: FetchPort, standing: FetchStanding, objects: Objects, seen: FetchProgress
) -> FetchFindings:
    """See how far a fetch is; at rest it asks nobody.

    Args:
        port: reads a pod that fetches.
        standing: where the fetch stands.
        objects: what the cluster holds.
        seen: what earlier passes saw of it.
    """
    endpoint = _endpoint(standing.pod) if asks_a_pod(standing) else None
    look = await port.look(endpoint) if endpoint else None
    seen = seen if look is None else seen.after(look)
    return fetch_findings(standing, objects, seen, answered=look is not None)


def _endpoint(pod: ObservedPod | None) -> PodEndpoint | None:
    if pod is None or not pod.ready or not pod.status.pod_ip:
        return None
    return PodEndpoint(pod.metadata.namespace, pod.name, pod.status.pod_ip, PORT)
