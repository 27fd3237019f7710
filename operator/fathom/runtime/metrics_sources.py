"""One reader per place where measurements come from, shared by all loops."""

import aiohttp

from fathom.adapters.metrics_source import choose
from fathom.adapters.pod_metrics import PodMetrics
from fathom.adapters.ports import Clock, MetricsPort
from fathom.adapters.prometheus import PrometheusMetrics
from fathom.api.spec import MetricsSource, MetricsSpec


class MetricsSources:
    """Opens a reader when the first spec asks for it; `close` closes all."""

    def __init__(self, session: aiohttp.ClientSession, clock: Clock) -> None:
        self._pods = PodMetrics(session, clock)
        self._prometheus: dict[str, PrometheusMetrics] = {}

    def of(self, spec: MetricsSpec) -> MetricsPort:
        """The reader that a spec's `metrics` asks for."""
        if choose(spec) is MetricsSource.PODS:
            return self._pods
        url = spec.prometheus_url
        if url not in self._prometheus:
            self._prometheus[url] = PrometheusMetrics(url)
        return self._prometheus[url]

    def close(self) -> None:
        for reader in self._prometheus.values():
            reader.close()
