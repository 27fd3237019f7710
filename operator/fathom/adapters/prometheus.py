"""Counters from a Prometheus that scrapes the pods.

One instant query with a range selector: it returns raw samples with their own times, in one
consistent read. An instant vector would carry the query's time, and a dead target's last value
would look fresh for five minutes.
"""

import asyncio
import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Final

import requests
from prometheus_api_client import PrometheusConnect
from prometheus_api_client.exceptions import PrometheusApiClientException
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from urllib3.util.retry import Retry

from fathom.adapters.exposition import FAMILIES, NotAnEngine, Point, counters
from fathom.adapters.ports import PodEndpoint, Sample
from fathom.core.measurement import PodCounters

TIMEOUT_S: Final = 10.0
LOOKBACK_S: Final = 150
"""Two scrapes at a minute's interval, and some delay; older samples are nobody's present."""
POD_LABELS: Final = ("pod", "kubernetes_pod_name")
NAMESPACE_LABELS: Final = ("namespace", "kubernetes_namespace")
"""By the Prometheus operator, and by the annotation-driven scrape configurations."""
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
        self._url = url.rstrip("/")
        self._timeout_s = timeout_s
        self._lookback_s = lookback_s
        # Without a session and retry policy of ours, the library retries for many seconds.
        self._session = requests.Session()
        self._client = PrometheusConnect(
            url=self._url, session=self._session, retry=Retry(total=0), timeout=timeout_s
        )

    def close(self) -> None:
        """Release the connections."""
        self._session.close()

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
        series: list[_Series] = []
        try:
            for pod_label, namespace_label in zip(POD_LABELS, NAMESPACE_LABELS, strict=True):
                query = selector(
                    {namespace_label: (namespace,), pod_label: names}, self._lookback_s
                )
                async with asyncio.timeout(self._timeout_s):
                    answer = await asyncio.to_thread(self._client.custom_query, query)
                series.extend(_ANSWER.validate_python(answer))
        except (TimeoutError, requests.Timeout):
            return self._failure(f"no answer within {self._timeout_s:g} s")
        except PrometheusApiClientException as error:
            return self._failure(f"it refused the query: {error}")
        except (ValidationError, requests.JSONDecodeError, KeyError, TypeError):
            return self._failure("its answer is not a Prometheus's; check metrics.prometheusURL")
        except requests.RequestException as error:
            return self._failure(str(error))
        return self._sample(namespace, names, series)

    def _failure(self, why: str) -> Sample:
        return Sample((), (f"Prometheus at {self._url} cannot be read: {why}.",))

    def _sample(self, namespace: str, names: Sequence[str], series: Iterable["_Series"]) -> Sample:
        by_pod: defaultdict[str, list[_Series]] = defaultdict(list)
        for each in series:
            by_pod[each.pod].append(each)
        found: list[PodCounters] = []
        failures: list[str] = []
        for name in names:
            if name not in by_pod:
                failures.append(
                    f"Prometheus at {self._url} has no sample of pod {namespace}/{name} within "
                    f"the last {self._lookback_s} s: check that it scrapes the pod, with labels "
                    "namespace and pod."
                )
                continue
            at_s, points = newest_scrape(by_pod[name])
            try:
                found.append(counters(points, pod=name, at_s=at_s))
            except NotAnEngine as error:
                failures.append(
                    f"Metrics of pod {namespace}/{name} in Prometheus at {self._url} cannot be "
                    f"used: {error}."
                )
        return Sample(tuple(found), tuple(failures))


class _Series(BaseModel):
    """One series of a range selector's answer."""

    model_config = ConfigDict(frozen=True)

    metric: dict[str, str]
    values: Annotated[tuple[tuple[float, float], ...], Field(min_length=1)]
    """Pairs of Unix seconds and value, ascending."""

    @property
    def pod(self) -> str:
        return next(self.metric[label] for label in POD_LABELS if label in self.metric)

    @property
    def target(self) -> tuple[str, str]:
        return (self.metric.get("job", ""), self.metric.get("instance", ""))


_ANSWER: Final = TypeAdapter(tuple[_Series, ...])


def newest_scrape(series: Sequence[_Series]) -> tuple[float, list[Point]]:
    """The samples of one pod's newest scrape, and its time.

    All samples of a scrape share one time, so series of an earlier life of the pod fall away. So
    do those of a second job that scrapes the same pod, which would count everything twice.
    """
    at_s, target = max((each.values[-1][0], each.target) for each in series)
    return at_s, [
        Point(each.metric.get("__name__", ""), each.metric, each.values[-1][1])
        for each in series
        if each.values[-1][0] == at_s and each.target == target
    ]


def selector(labels: Mapping[str, Sequence[str]], lookback_s: int) -> str:
    """A range selector over every family that is read, for series with these label values."""
    names = "|".join(re.escape(name) for name in sorted(FAMILIES))
    matchers = [f"__name__=~{_quoted(names)}"]
    for label, values in labels.items():
        pattern = "|".join(re.escape(value) for value in values)
        matchers.append(f"{label}=~{_quoted(pattern)}")
    return f"{{{','.join(matchers)}}}[{lookback_s}s]"


def _quoted(text: str) -> str:
    """A PromQL string literal; its escapes are a superset of JSON's."""
    return json.dumps(text)
