"""One reader per place where measurements come from, shared by all loops."""

from weakref import WeakValueDictionary

import aiohttp

from fathom.adapters.http import Room
from fathom.adapters.pod_metrics import PodMetrics
from fathom.adapters.ports import Clock, FetchPort, MetricsPort, PodEndpoint, choose
from fathom.adapters.prometheus_metrics import ROOM_BYTES, PrometheusMetrics
from fathom.api.choices import MetricsSource
from fathom.api.spec import MetricsSpec
from fathom.cluster.observed_pods import ObservedPod
from fathom.cluster.snapshot import Objects
from fathom.fetch.progress import FetchProgress
from fathom.fetch.state import FetchStanding
from fathom.reconcile.fetching import FetchFindings, asks_a_pod, fetch_findings
from fathom_fetch.metrics import PORT

_Where = tuple[str, frozenset[tuple[str, str]]]
"""URL and labels."""


class MetricsSources:
    """Opens a reader when a spec asks for it; one that nobody uses any more is gone."""

    def __init__(
        self, pods: aiohttp.ClientSession, prometheus: aiohttp.ClientSession, clock: Clock
    ) -> None:
        """Borrow sessions; the caller closes them.

        Args:
            pods: to read the pods' own pages with.
            prometheus: to ask every Prometheus with; another one, since who may name a URL must
                not use up the connections that pods are read with.
            clock: stamps what pods show.
        """
        self._pods = PodMetrics(pods, clock)
        self._session = prometheus
        self._room = Room(ROOM_BYTES)
        self._prometheus: WeakValueDictionary[_Where, PrometheusMetrics] = WeakValueDictionary()

    def of(self, spec: MetricsSpec) -> MetricsPort:
        """The reader that a spec's `metrics` asks for."""
        if choose(spec) is MetricsSource.PODS:
            return self._pods
        url = spec.prometheus_url.rstrip("/")
        labels = spec.prometheus_labels
        where = (url, frozenset(labels.items()))
        reader = self._prometheus.get(where)
        if reader is None:
            reader = PrometheusMetrics(self._session, url, room=self._room, labels=labels)
            self._prometheus[where] = reader
        return reader


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
    return PodEndpoint(
        namespace=pod.metadata.namespace, pod=pod.name, ip=pod.status.pod_ip, port=PORT
    )
