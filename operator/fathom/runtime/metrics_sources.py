"""One reader per place where measurements come from, shared by all loops."""

from weakref import WeakValueDictionary

import aiohttp

from fathom.adapters.answers import Room
from fathom.adapters.metrics_source import choose
from fathom.adapters.pod_metrics import PodMetrics
from fathom.adapters.ports import Clock, MetricsPort
from fathom.adapters.prometheus.metrics import ROOM_BYTES, PrometheusMetrics
from fathom.api.choices import MetricsSource
from fathom.api.spec import MetricsSpec

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
