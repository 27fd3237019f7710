"""Counters from a Prometheus that scrapes the pods.

Two questions. The first asks when each pod was scraped last, by one series of each. The second is a
range selector that ends there and is short: it returns raw samples with their own times, in one
consistent read, and each series once or twice. Values without their times would not do: what a
Prometheus copies of another one may arrive in parts, and two scrapes would be mixed.
"""

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import inf, isnan
from typing import Final, NamedTuple

import aiohttp

from fathom.adapters.exposition import counters
from fathom.adapters.http import Room
from fathom.adapters.ports import PodEndpoint, Sample
from fathom.adapters.prometheus_query import (
    LABEL_PAIRS,
    NO_LABELS,
    Login,
    PrometheusAnswerTooLargeError,
    PrometheusQuery,
    PrometheusRefusedError,
    PrometheusUnreadableError,
    Series,
    any_of,
)
from fathom.adapters.series import EVERY_ENGINE, PAGE_LABELS, NotAnEngine, Point
from fathom.api.names import pod_labels
from fathom.measurement.counters import PodCounters, Unread, UnreadKind

TIMEOUT_S: Final = 10.0
LOOKBACK_S: Final = 150
"""Two scrapes at a minute's interval, and some delay; older samples are nobody's present."""
PODS_PER_QUERY: Final = 8
"""Keeps the query's URL under the 8 KiB that proxies commonly accept, and the answer in bounds: a
pod that used every cell of depths 0 to 7 is 0.4 MB of it at most, and twice that by two jobs."""
LONGEST_RANGE_S: Final = 15.0
"""Between the last scrapes of pods that are asked for together: more of it would be repetition."""
RESOLUTION_S: Final = 0.001
"""Resolution of a Prometheus's times."""
LARGEST_ANSWER_BYTES: Final = 8 * 1024 * 1024
"""Limit for one query. Read into lists and numbers it may take thirty times as much."""
ROOM_BYTES: Final = 32 * 1024 * 1024
"""Memory for all answers of all sources that are on their way."""
LOOKS_AT_ONCE: Final = 4
"""That one source is asked for; the others wait, as long as a look may take."""


class Scraped(NamedTuple):
    """When a pod was scraped last."""

    at_s: float
    """Unix seconds."""
    every_s: float
    """Seconds since the scrape before it."""
    pod: str


class PrometheusMetrics:
    """Reads pods' metrics from a Prometheus. A `MetricsPort`: never raises, it says so."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        url: str,
        *,
        timeout_s: float = TIMEOUT_S,
        labels: Mapping[str, str] = NO_LABELS,
        login: Login | None = None,
        lookback_s: int = LOOKBACK_S,
        largest_answer_bytes: int = LARGEST_ANSWER_BYTES,
        looks_at_once: int = LOOKS_AT_ONCE,
        room: Room | None = None,
    ) -> None:
        """Borrow a session; the caller closes it. Nothing is sent yet.

        Args:
            session: best one from `http_session`, and not one that reads anything else.
            url: base URL of the Prometheus.
            timeout_s: seconds one look may take, with all its queries and the wait for a turn.
            labels: that every series of these pods has there.
            login: sent to this URL; None: none.
            lookback_s: age in seconds beyond which a pod's last sample is not reported at all.
            largest_answer_bytes: of one query.
            looks_at_once: looks that ask at the same time.
            room: shared with other sources; None: one of its own.
        """
        self._query = PrometheusQuery(
            session,
            url,
            timeout_s=timeout_s,
            most_bytes=largest_answer_bytes,
            room=room or Room(ROOM_BYTES),
            labels=labels,
            login=login,
        )
        self._timeout_s = timeout_s
        self._lookback_s = lookback_s
        self._turns = asyncio.Semaphore(looks_at_once)

    async def sample(self, pods: Sequence[PodEndpoint]) -> Sample:
        """Read the counters of these pods, each at its last scrape's time. Idempotent."""
        found: list[PodCounters] = []
        failures: list[Unread] = []
        left = list(pods)
        kind = UnreadKind.NO_ANSWER
        why = f"it is still busy with earlier questions after {self._timeout_s:g} s"
        try:
            async with asyncio.timeout(self._timeout_s), self._turns:
                why = f"no answer within {self._timeout_s:g} s"
                for part in _parts(pods):
                    sample = await self._read(part)
                    found.extend(sample.counters)
                    failures.extend(sample.failures)
                    left = [each for each in left if each not in part]
        except TimeoutError:
            cause = str(self._query.unreadable(why))
        except PrometheusUnreadableError as error:
            # It would say the same of the others, only later.
            cause = str(error)
            if isinstance(error, PrometheusRefusedError):
                kind = UnreadKind.REFUSED
        else:
            return Sample(tuple(found), tuple(failures))
        failures.extend(Unread(pod.pod, cause, kind) for pod in left)
        return Sample(tuple(found), tuple(failures))

    async def _read(self, pods: Sequence[PodEndpoint]) -> Sample:
        """Read pods of one namespace, not too many."""
        try:
            return self._sample(pods, await self._series(pods))
        except PrometheusAnswerTooLargeError:
            if len(pods) == 1:
                raise
        middle = len(pods) // 2
        first, second = [await self._read(each) for each in (pods[:middle], pods[middle:])]
        return Sample(first.counters + second.counters, first.failures + second.failures)

    async def _series(self, pods: Sequence[PodEndpoint]) -> list[Series]:
        series: list[Series] = []
        for pair in LABEL_PAIRS:
            for part in together(await self._scraped(pods, pair)):
                patterns = _patterns(pods[0].namespace, (each.pod for each in part), pair)
                found = await self._query.series(patterns, range_s(part), at_s=part[-1].at_s)
                series += _up_to({each.pod: each.at_s for each in part}, found)
        return series

    async def _scraped(
        self, pods: Sequence[PodEndpoint], pair: tuple[str, str]
    ) -> Iterable[Scraped]:
        """When each pod was scraped last, of those that were within the lookback.

        By a range, too: an instant vector has no value of a pod whose very last scrape failed. Such
        a scrape is left out of ranges, or, by VictoriaMetrics, shown as NaN.
        """
        patterns = _patterns(pods[0].namespace, (pod.pod for pod in pods), pair)
        by_pod: defaultdict[str, list[Series]] = defaultdict(list)
        one = [EVERY_ENGINE]
        for each in await self._query.series(patterns, self._lookback_s, families=one):
            by_pod[each.metric[pair[0]]].append(each)
        last = (_last(pod.pod, at_its_address(by_pod[pod.pod], pod.ip)) for pod in pods)
        return [each for each in last if each is not None]

    def _sample(self, pods: Sequence[PodEndpoint], series: Iterable[Series]) -> Sample:
        by_pod: defaultdict[str, list[Series]] = defaultdict(list)
        for each in series:
            by_pod[each.pod].append(each)
        found: list[PodCounters] = []
        failures: list[Unread] = []
        for pod in pods:
            name = pod.pod
            if name not in by_pod:
                failures.append(
                    Unread(
                        name,
                        f"{self._query.where} has no vllm: metrics of it within the last "
                        f"{self._lookback_s} s: check that it scrapes the pod, with labels "
                        f"{pod_labels(self._query.labels)}",
                    )
                )
                continue
            at_s, points = newest_scrape(at_its_address(by_pod[name], pod.ip))
            try:
                found.append(counters(points, pod=name, at_s=at_s))
            except NotAnEngine as error:
                failures.append(
                    Unread(name, f"what {self._query.where} has of it cannot be used: {error}")
                )
        return Sample(tuple(found), tuple(failures))


def _last(pod: str, series: Iterable[Series]) -> Scraped | None:
    found = []
    for each in series:
        moments = [at_s for at_s, value in each.values if not isnan(value)]
        if moments:
            every_s = moments[-1] - moments[-2] if len(moments) > 1 else LONGEST_RANGE_S
            found.append(Scraped(moments[-1], every_s, pod))
    return max(found, default=None)


def together(scraped: Iterable[Scraped]) -> list[list[Scraped]]:
    """Pods that one range is asked for, the earliest first: their last scrapes are close."""
    parts: list[list[Scraped]] = []
    for each in sorted(scraped):
        if not parts or each.at_s - parts[-1][0].at_s > LONGEST_RANGE_S:
            parts.append([])
        parts[-1].append(each)
    return parts


def range_s(part: Sequence[Scraped]) -> float:
    """Seconds back from the last scrape of all, within which each of these pods was scraped.

    Not to its last scrape alone, but for as long as one takes to come: of two Prometheus behind one
    address the other may answer, and has scraped the same pods at other moments.
    """
    return part[-1].at_s - part[0].at_s + max(each.every_s for each in part) + RESOLUTION_S


def _patterns(namespace: str, pods: Iterable[str], pair: tuple[str, str]) -> dict[str, str]:
    pod_label, namespace_label = pair
    return {namespace_label: any_of([namespace]), pod_label: any_of(pods)}


def _up_to(scraped_s: Mapping[str, float], series: Iterable[Series]) -> Iterator[Series]:
    """Series without what comes after their pods' last scrapes: it tells of scrapes that failed."""
    for each in series:
        last_s = scraped_s.get(each.pod, inf)
        if each.values[-1][0] <= last_s:
            yield each
        elif values := tuple(value for value in each.values if value[0] <= last_s):
            yield replace(each, values=values)


def at_its_address(series: Sequence[Series], ip: str) -> Sequence[Series]:
    """Series of the pod itself among those of its name, as far as addresses show.

    Another cluster may have a pod of the same name: those of groups are numbered.
    """
    if all(each.ip != ip for each in series):
        return series
    return [each for each in series if each.ip in {ip, ""}]


def newest_scrape(series: Sequence[Series]) -> tuple[float, list[Point]]:
    """The samples of one pod's newest whole scrape, each once, and its time.

    All samples of a scrape share one time, so series of an earlier life of the pod fall away. So
    do those of a second job that scrapes the same pod, which would count everything twice.

    A scrape that came by remote write may have arrived in part. Then some series end at the one
    before it, which is taken. So is it, once, where an engine that restarted shows less.
    """
    newest_s, target = max((each.values[-1][0], each.target) for each in series)
    ours = [each for each in series if each.target == target]
    before_s = max(
        (each.values[-2][0] for each in ours if each.values[-1][0] == newest_s and each.values[1:]),
        default=newest_s,
    )
    ends_s = {each.values[-1][0] for each in ours}
    at_s = before_s if before_s in ends_s else newest_s
    return at_s, once(
        Point(each.name, each.metric, value)
        for each in ours
        for sampled_s, value in each.values[-2:]
        if sampled_s == at_s
    )


def once(points: Iterable[Point]) -> list[Point]:
    """One scrape's samples without copies of them.

    A Prometheus that reads another one, or two replicas of it, adds labels of its own to what it
    copies, and one whose pods have both pairs of labels is asked for them twice. A copy differs in
    nothing that the page itself says.
    """
    told: dict[tuple[object, ...], Point] = {}
    for point in points:
        said = tuple(map(point.labels.get, PAGE_LABELS))
        told.setdefault((point.name, said, point.value), point)
    return list(told.values())


def _parts(pods: Sequence[PodEndpoint]) -> Iterable[Sequence[PodEndpoint]]:
    """Pods that one query asks for: of one namespace, and not too many."""
    by_namespace: defaultdict[str, list[PodEndpoint]] = defaultdict(list)
    for pod in pods:
        by_namespace[pod.namespace].append(pod)
    for found in by_namespace.values():
        for start in range(0, len(found), PODS_PER_QUERY):
            yield found[start : start + PODS_PER_QUERY]
