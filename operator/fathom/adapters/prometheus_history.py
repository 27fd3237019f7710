"""What a Prometheus recorded of one resource's pods, scrape by scrape.

Range selectors, a few minutes each, rather than a range query: they return raw samples with the
times of their scrapes, while a range query's values carry its own steps' times and repeat what a
dead pod showed last for five minutes.
"""

import re
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass
from math import ceil
from typing import Final

import aiohttp

from fathom.adapters.http import Room
from fathom.adapters.prometheus_metrics import once
from fathom.adapters.prometheus_query import (
    LABEL_PAIRS,
    NAMESPACE_LABELS,
    NO_LABELS,
    POD_LABELS,
    PrometheusQuery,
    Series,
    any_of,
)
from fathom.adapters.series import Point
from fathom.cluster.kinds import ObjectKey

TIMEOUT_S: Final = 60.0
LARGEST_ANSWER_BYTES: Final = 128 * 1024 * 1024
"""Limit for one query: thirty pods that used every cell, scraped every five seconds."""
CHUNK_S: Final = 300
"""Length of one query's range: some thousands of samples per pod."""
SAME_SCRAPE: Final = 0.9
"""Scrapes come a little early or late: so much of a step is a step."""
_TARGET_LABELS: Final = frozenset({"__name__", "job", "instance", *POD_LABELS, *NAMESPACE_LABELS})
"""What Prometheus adds to a page's own labels."""


@dataclass(frozen=True, slots=True)
class Scrape:
    """All samples that one scrape of one pod brought."""

    pod: str
    at_s: float
    """When it was scraped (Unix seconds)."""
    points: tuple[Point, ...]


@dataclass(frozen=True, slots=True)
class Chunk:
    """What one query brought."""

    until_s: float
    """All before this is told (Unix seconds)."""
    scrapes: tuple[Scrape, ...]
    """In the order of time."""


class PrometheusHistory:
    """Reads the past of the pods of one SpeculativeDeployment."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        url: str,
        *,
        labels: Mapping[str, str] = NO_LABELS,
        timeout_s: float = TIMEOUT_S,
        largest_answer_bytes: int = LARGEST_ANSWER_BYTES,
    ) -> None:
        """Borrow a session; the caller closes it.

        Args:
            session: best one from `http_session`.
            url: base URL of the Prometheus.
            labels: that every series of these pods has there.
            timeout_s: seconds one query may take in all.
            largest_answer_bytes: of one query.
        """
        self._query = PrometheusQuery(
            session,
            url,
            timeout_s=timeout_s,
            most_bytes=largest_answer_bytes,
            room=Room(largest_answer_bytes),
            labels=labels,
        )

    async def chunks(
        self, key: ObjectKey, from_s: float, to_s: float, step_s: float
    ) -> AsyncIterator[Chunk]:
        """Read the past from its beginning.

        Args:
            key: the resource whose pods are meant.
            from_s: first moment (Unix seconds).
            to_s: last moment (Unix seconds).
            step_s: scrapes of a pod that follow each other sooner are passed over.

        Raises:
            PrometheusUnreadableError: one of the queries failed.
        """
        told: dict[str, float] = {}
        for i in range(max(1, ceil((to_s - from_s) / CHUNK_S))):
            until_s = min(to_s, from_s + (i + 1) * CHUNK_S)
            series: list[Series] = []
            for pod_label, namespace_label in LABEL_PAIRS:
                patterns = {namespace_label: any_of([key.namespace]), pod_label: _pods_of(key.name)}
                series.extend(await self._query.series(patterns, CHUNK_S, at_s=until_s))
            yield Chunk(until_s, tuple(_thinned(scrapes(series), told, step_s)))


def scrapes(series: Iterable[Series]) -> list[Scrape]:
    """Samples put together by pod and time; all samples of one scrape share its time.

    Where two jobs scrape a pod, which would count everything twice, one of them is left out.
    """
    found: defaultdict[tuple[str, tuple[str, str], float], list[Point]] = defaultdict(list)
    targets: dict[str, tuple[str, str]] = {}
    for each in series:
        targets[each.pod] = max(each.target, targets.get(each.pod, each.target))
        labels = {key: value for key, value in each.metric.items() if key not in _TARGET_LABELS}
        for at_s, value in each.values:
            found[each.pod, each.target, at_s].append(Point(each.name, labels, value))
    return sorted(
        (
            Scrape(pod, at_s, tuple(once(points)))
            for (pod, target, at_s), points in found.items()
            if target == targets[pod]
        ),
        key=lambda scrape: (scrape.at_s, scrape.pod),
    )


def _thinned(found: Iterable[Scrape], told: dict[str, float], step_s: float) -> Iterable[Scrape]:
    """Those that are a step after the one told before; `told` is kept up to date."""
    for scrape in found:
        before_s = told.get(scrape.pod, float("-inf"))
        if scrape.at_s - before_s >= max(SAME_SCRAPE * step_s, 1e-3):
            told[scrape.pod] = scrape.at_s
            yield scrape


def _pods_of(name: str) -> str:
    """A pattern for the names of pods that serve, of any revision: a Deployment's or a group's."""
    return f"{re.escape(name)}-[0-9a-f]{{8}}-(?:[a-z0-9]+-[a-z0-9]+|[0-9]+)"
