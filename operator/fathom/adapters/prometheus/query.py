"""Queries to a Prometheus, or to whatever answers at its URL: bounded, answers checked."""

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import isfinite
from typing import Final
from urllib.parse import urlsplit

import aiohttp

from fathom.adapters.answers import BadAnswerError, Room, whole_answer
from fathom.adapters.exposition import FAMILIES

POD_LABELS: Final = ("pod", "kubernetes_pod_name")
NAMESPACE_LABELS: Final = ("namespace", "kubernetes_namespace")
"""By the Prometheus operator, and by the annotation-driven scrape configurations."""
LABEL_PAIRS: Final = tuple(zip(POD_LABELS, NAMESPACE_LABELS, strict=True))


class PrometheusUnreadableError(Exception):
    """There is no usable answer; the message says where and why, without the full stop."""


@dataclass(frozen=True, slots=True)
class Series:
    """One series of an answer."""

    metric: dict[str, str]
    values: tuple[tuple[float, float], ...]
    """Pairs of Unix seconds and value, ascending; at least one, and just one unless the question
    was a range selector."""

    @property
    def name(self) -> str:
        return self.metric.get("__name__", "")

    @property
    def pod_label(self) -> str:
        """The label that names the pod."""
        return next(label for label in POD_LABELS if label in self.metric)

    @property
    def pod(self) -> str:
        return self.metric[self.pod_label]

    @property
    def target(self) -> tuple[str, str]:
        return (self.metric.get("job", ""), self.metric.get("instance", ""))


class PrometheusQuery:
    """One Prometheus. Nothing is sent before the first question."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        url: str,
        *,
        timeout_s: float,
        most_bytes: int,
        room: Room,
    ) -> None:
        """Borrow a session; the caller closes it.

        Args:
            session: best one from `http_session`.
            url: base URL of the Prometheus.
            timeout_s: seconds one query may take in all.
            most_bytes: of one answer.
            room: shared with other answers that are read at the same time.
        """
        self.where = f"Prometheus at {_host(url)}"
        self._session = session
        self._url = f"{url.rstrip('/')}/api/v1/query"
        self._timeout_s = timeout_s
        self._most_bytes = most_bytes
        self._room = room

    async def series(self, query: str, at_s: float | None = None) -> tuple[Series, ...]:
        """Ask an instant query. Idempotent.

        Args:
            query: one that has a vector for an answer, or a range vector.
            at_s: its moment, a range's end (Unix seconds); None: now.

        Raises:
            PrometheusUnreadableError: it is away, too slow, refuses, or is no Prometheus.
        """
        time = {} if at_s is None else {"time": str(at_s)}
        try:
            answer = await whole_answer(
                self._session,
                self._url,
                params={"query": query, **time},
                most_bytes=self._most_bytes,
                timeout_s=self._timeout_s,
                room=self._room,
            )
            return tuple(_series_of(answer))
        except BadAnswerError as error:
            raise self.unreadable(str(error)) from error
        except (ValueError, LookupError, TypeError, OverflowError, RecursionError) as error:
            raise self.unreadable(
                "its answer is not a Prometheus's; check the URL (metrics.prometheusURL)"
            ) from error

    def unreadable(self, why: str) -> PrometheusUnreadableError:
        return PrometheusUnreadableError(f"{self.where} cannot be read: {why}")


def any_of(values: Iterable[str]) -> str:
    """A pattern that matches exactly these label values."""
    return "|".join(re.escape(value) for value in values)


def selector(patterns: dict[str, str], lookback_s: float) -> str:
    """A range selector over every family that is read.

    Args:
        patterns: an anchored regular expression (RE2) per label.
        lookback_s: length of the range in seconds, to the millisecond.
    """
    terms = _terms({"__name__": any_of(sorted(FAMILIES)), **patterns})
    return f"{{{terms}}}[{round(1000 * lookback_s)}ms]"


def scrape_times(family: str, patterns: dict[str, str]) -> str:
    """A query for the moments (Unix seconds) at which the series of one family were scraped last.

    Args:
        family: one that every pod shows.
        patterns: an anchored regular expression (RE2) per label.
    """
    return f"timestamp({family}{{{_terms(patterns)}}})"


def _terms(patterns: dict[str, str]) -> str:
    # A PromQL string literal's escapes are a superset of JSON's.
    return ",".join(f"{label}=~{json.dumps(pattern)}" for label, pattern in patterns.items())


def _host(url: str) -> str:
    """Of a URL, for sentences: the rest of it may hold what is nobody else's business."""
    try:
        return urlsplit(url).netloc.rpartition("@")[2] or "a URL without a host"
    except ValueError:
        return "a URL without a host"


def _series_of(answer: bytes) -> Iterator[Series]:
    """What a Prometheus's answer holds.

    By hand, and up to the first thing that is wrong: pydantic would list all of them, and a few
    megabytes of nonsense become gigabytes of complaints.

    Raises:
        ValueError, LookupError, TypeError, OverflowError, RecursionError: it is not a Prometheus's.
    """
    for each in json.loads(answer)["data"]["result"]:
        metric = each["metric"]
        pairs = each["values"] if "values" in each else [each["value"]]
        # Hundreds of thousands of these, hence in C where that is as short.
        moments = [float(at_s) for at_s, _ in pairs]
        if not moments or not all(map(isfinite, moments)):
            raise ValueError
        if not isinstance(metric, dict) or not set(map(type, metric.values())) <= {str}:
            raise TypeError
        if metric.keys().isdisjoint(POD_LABELS):
            raise LookupError
        values = [float(value) for _, value in pairs]
        yield Series(metric, tuple(zip(moments, values, strict=True)))
