"""Counters from a Prometheus that scrapes the pods.

One instant query with a range selector: it returns raw samples with their own times, in one
consistent read. An instant vector would carry the query's time, and a dead target's last value
would look fresh for five minutes.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

from fathom.adapters.exposition import NotAnEngine, Point, counters
from fathom.adapters.ports import PodEndpoint, Sample
from fathom.adapters.prometheus_query import (
    NAMESPACE_LABELS,
    POD_LABELS,
    PrometheusQuery,
    PrometheusUnreadableError,
    Series,
    any_of,
    selector,
)
from fathom.core.measurement import PodCounters

TIMEOUT_S: Final = 10.0
LOOKBACK_S: Final = 150
"""Two scrapes at a minute's interval, and some delay; older samples are nobody's present."""
PODS_PER_QUERY: Final = 50
"""Keeps the query's URL under the 8 KiB that proxies commonly accept."""


class PrometheusMetrics:
    """Reads pods' metrics from a Prometheus. A `MetricsPort`: never raises, it says so."""

    def __init__(
        self, url: str, *, timeout_s: float = TIMEOUT_S, lookback_s: int = LOOKBACK_S
    ) -> None:
        """Connect lazily; nothing is sent yet.

        Args:
            url: base URL of the Prometheus.
            timeout_s: seconds one query may take.
            lookback_s: age in seconds beyond which a pod's last sample is not reported at all.
        """
        self._query = PrometheusQuery(url, timeout_s)
        self._lookback_s = lookback_s

    def close(self) -> None:
        """Release the connections."""
        self._query.close()

    async def sample(self, pods: Sequence[PodEndpoint]) -> Sample:
        """Read the counters of these pods, each at its last scrape's time. Idempotent."""
        by_namespace: defaultdict[str, list[str]] = defaultdict(list)
        for pod in pods:
            by_namespace[pod.namespace].append(pod.pod)
        found: list[PodCounters] = []
        failures: list[str] = []
        for namespace, names in by_namespace.items():
            for start in range(0, len(names), PODS_PER_QUERY):
                part = await self._read(namespace, names[start : start + PODS_PER_QUERY])
                found.extend(part.counters)
                failures.extend(part.failures)
        return Sample(tuple(found), tuple(failures))

    async def _read(self, namespace: str, names: Sequence[str]) -> Sample:
        series: list[Series] = []
        try:
            for pod_label, namespace_label in zip(POD_LABELS, NAMESPACE_LABELS, strict=True):
                patterns = {namespace_label: any_of([namespace]), pod_label: any_of(names)}
                series.extend(await self._query.series(selector(patterns, self._lookback_s)))
        except PrometheusUnreadableError as error:
            return Sample((), (str(error),))
        return self._sample(namespace, names, series)

    def _sample(self, namespace: str, names: Sequence[str], series: Iterable[Series]) -> Sample:
        by_pod: defaultdict[str, list[Series]] = defaultdict(list)
        for each in series:
            by_pod[each.pod].append(each)
        where = f"Prometheus at {self._query.url}"
        found: list[PodCounters] = []
        failures: list[str] = []
        for name in names:
            if name not in by_pod:
                failures.append(
                    f"{where} has no sample of pod {namespace}/{name} within the last "
                    f"{self._lookback_s} s: check that it scrapes the pod, with labels "
                    "namespace and pod."
                )
                continue
            at_s, points = newest_scrape(by_pod[name])
            try:
                found.append(counters(points, pod=name, at_s=at_s))
            except NotAnEngine as error:
                failures.append(
                    f"Metrics of pod {namespace}/{name} in {where} cannot be used: {error}."
                )
        return Sample(tuple(found), tuple(failures))


def newest_scrape(series: Sequence[Series]) -> tuple[float, list[Point]]:
    """The samples of one pod's newest scrape, and its time.

    All samples of a scrape share one time, so series of an earlier life of the pod fall away. So
    do those of a second job that scrapes the same pod, which would count everything twice.
    """
    at_s, target = max((each.values[-1][0], each.target) for each in series)
    return at_s, [
        Point(each.name, each.metric, each.values[-1][1])
        for each in series
        if each.values[-1][0] == at_s and each.target == target
    ]
