"""What a person's own Prometheus recorded of one resource's pods, scrape by scrape.

Range selectors, a few minutes each, rather than a range query: they return raw samples with the
times of their scrapes, while a range query's values carry its own steps' times and repeat what a
dead pod showed last for five minutes.

It asks through prometheus-api-client, in a session that bounds what comes (design record 0063).
"""

import asyncio
import os
import re
import socket
import ssl
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from io import BytesIO
from math import ceil
from pathlib import Path
from threading import Thread
from time import monotonic
from types import MappingProxyType
from typing import Any, Final, TypeVar

import requests
import urllib3
from prometheus_api_client.prometheus_connect import PrometheusConnect

from fathom.adapters.http import BadAnswerError, NoAnswerError, TooLargeError, cause_of, refusal
from fathom.adapters.prometheus_metrics import once
from fathom.adapters.prometheus_query import (
    LABEL_PAIRS,
    NAMESPACE_LABELS,
    NO_LABELS,
    POD_LABELS,
    PrometheusUnreadableError,
    Series,
    any_of,
    host_in,
    selector,
    series_of,
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
_PIECE_BYTES: Final = 1 << 16
"""So much of an answer is read at a time, at most."""
_REFUSED: Final[Mapping[int, str]] = MappingProxyType(
    {
        401: "it asks for a login (HTTP status 401); give one that it takes with --header-file",
        403: "the login may not query it (HTTP status 403); give it the right to",
        429: "it is asked more often than it allows (HTTP status 429); raise its limit",
    }
)
_NO_PROMETHEUS: Final = "its answer is not a Prometheus's; check the URL (--prometheus)"
_NO_URL: Final = "this is not a URL that can be asked"
_WHY: Final = (
    (requests.exceptions.JSONDecodeError, _NO_PROMETHEUS),
    (requests.exceptions.ProxyError, "the proxy (--proxy) does not connect to it"),
    (
        (
            requests.exceptions.InvalidURL,
            requests.exceptions.InvalidSchema,
            requests.exceptions.MissingSchema,
        ),
        _NO_URL,
    ),
    (socket.gaierror, "its name cannot be resolved"),
    (
        ssl.SSLCertVerificationError,
        "its certificate is not trusted, or is for another name; name its CA with --ca-file",
    ),
    (ssl.SSLError, "no TLS connection comes about"),
    (urllib3.exceptions.IncompleteRead, "it broke off in the middle of its answer"),
    (ConnectionResetError, "it closed the connection"),
)
"""What an error is, or comes of, and the sentence's second half that it becomes."""
_NO_RETRY: Final = urllib3.Retry(0, read=False)
_Found = TypeVar("_Found")


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """How to reach a Prometheus. A netrc and the environment's proxies do not count."""

    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Sent with each query: a login, a tenant."""
    proxy: str = ""
    """Its URL; empty: none."""
    ca_file: Path | None = None
    """Certificates (PEM) that its own is held against; None: the system's."""


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
        url: str,
        access: Access | None = None,
        *,
        labels: Mapping[str, str] = NO_LABELS,
        timeout_s: float = TIMEOUT_S,
        largest_answer_bytes: int = LARGEST_ANSWER_BYTES,
    ) -> None:
        """Send nothing yet. The caller closes it.

        Args:
            url: base URL of the Prometheus; it may hold a login.
            access: how to reach it; None: directly, and without a login of its own.
            labels: that every series of these pods has there.
            timeout_s: seconds one query may take in all.
            largest_answer_bytes: of one query.

        Raises:
            PrometheusUnreadableError: the URL is none.
        """
        access = access or Access()
        self._where = f"Prometheus at {host_in(url)}"
        self._of_all = [(label, any_of([value])) for label, value in labels.items()]
        self._timeout_s = timeout_s
        self._session = _BoundedSession(access, timeout_s, largest_answer_bytes)
        try:
            self._client = PrometheusConnect(
                url.rstrip("/"), dict(access.headers), session=self._session, retry=_NO_RETRY
            )
        except ValueError as error:
            raise self._unreadable(_NO_URL) from error

    def close(self) -> None:
        """Let go of what it holds."""
        self._session.close()

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
                series.extend(await self._series(patterns, until_s))
            yield Chunk(until_s, tuple(_thinned(scrapes(series), told, step_s)))

    async def _series(self, patterns: Mapping[str, str], until_s: float) -> list[Series]:
        """Ask for a chunk's series that match these patterns. Idempotent."""
        query = selector([*patterns.items(), *self._of_all], CHUNK_S)
        try:
            async with asyncio.timeout(self._timeout_s):
                return await in_a_thread(partial(self._ask, query, until_s))
        except TimeoutError as error:
            raise self._unreadable(_no_answer(self._timeout_s)) from error
        except BadAnswerError as error:
            raise self._unreadable(str(error)) from error

    def _ask(self, query: str, until_s: float) -> list[Series]:
        try:
            return [*series_of(self._client.custom_query(query, {"time": str(until_s)}))]
        except (requests.RequestException, urllib3.exceptions.HTTPError, OSError) as error:
            raise _bad_answer(error, self._timeout_s) from error
        except (ValueError, LookupError, TypeError, OverflowError, RecursionError) as error:
            raise BadAnswerError(_NO_PROMETHEUS) from error

    def _unreadable(self, why: str) -> PrometheusUnreadableError:
        return PrometheusUnreadableError(f"{self._where} cannot be read: {why}")


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


class _BoundedSession(requests.Session):
    """Lets through whole answers of status 200, within a time and a size, and nothing else.

    So the client has no error to quote, no redirect to follow, and nothing to try again.
    """

    def __init__(self, access: Access, timeout_s: float, most_bytes: int) -> None:
        super().__init__()
        self.trust_env = False  # neither proxies nor a netrc, which would go before a header
        self.proxies = dict.fromkeys(("http", "https"), access.proxy) if access.proxy else {}
        # The system's, as everywhere else in Fathom: `True` would be a list of requests' own.
        system = ssl.get_default_verify_paths()
        self.verify = str(access.ca_file or system.cafile or system.capath or "") or True
        self.headers["Accept-Encoding"] = "identity"
        self._timeout_s, self._most_bytes = timeout_s, most_bytes

    def get_redirect_target(self, _: requests.Response) -> None:
        """No redirect is followed: `allow_redirects=False` would still read all of its body."""

    def send(self, request: requests.PreparedRequest, **options: Any) -> requests.Response:
        """Send it, and read the answer.

        Raises:
            NoAnswerError: it took too long.
            BadAnswerError: there is no such answer.
            requests.RequestException: something went wrong on the way.
            urllib3.exceptions.HTTPError: as above, in the middle of the answer.
        """
        options |= {"stream": True, "timeout": self._timeout_s}
        ends_s = monotonic() + self._timeout_s
        with super().send(request, **options) as response:
            body = b"".join(self._pieces(response, ends_s))
        # A connection that is kept may be closed by the server as the next query is sent.
        self.close()
        response.raw = BytesIO(body)
        response.encoding = "utf-8"  # else requests guesses, from all of it
        return response

    def _pieces(self, response: requests.Response, ends_s: float) -> Iterator[bytes]:
        status = response.status_code
        if status != HTTPStatus.OK:
            raise BadAnswerError(_REFUSED.get(status) or refusal(status))
        if response.headers.get("Content-Encoding", "identity") != "identity":
            raise BadAnswerError("its answer comes packed, though it was asked not to pack it")
        most_bytes = left_bytes = self._most_bytes
        while piece := response.raw.read1(_PIECE_BYTES):
            left_bytes -= len(piece)
            if left_bytes < 0:
                raise TooLargeError(f"its answer is larger than {most_bytes} bytes")
            if monotonic() > ends_s:
                raise NoAnswerError(_no_answer(self._timeout_s))
            yield piece


def _bad_answer(error: Exception, timeout_s: float) -> BadAnswerError:
    """What went wrong on the way; nothing that a server said."""
    causes = [*_causes(error)]
    origin = causes[-1]
    if isinstance(origin, TimeoutError):
        return NoAnswerError(_no_answer(timeout_s))
    for kind, why in _WHY:
        if any(isinstance(each, kind) for each in causes):
            return BadAnswerError(why)
    if isinstance(origin, OSError) and origin.errno:
        return BadAnswerError(f"no connection comes about ({os.strerror(origin.errno)})")
    return BadAnswerError(cause_of(origin))


def _causes(error: BaseException | None) -> Iterator[Exception]:
    """An error, what it comes of, and so on to the first one."""
    while isinstance(error, Exception):
        yield error
        error = error.__cause__ or error.__context__


def _no_answer(timeout_s: float) -> str:
    return f"no answer within {timeout_s:g} s"


async def in_a_thread(work: Callable[[], _Found]) -> _Found:
    """What work returns. Whoever gives it up leaves it behind, until the process ends.

    Not `asyncio.to_thread`: its threads are waited for at the end. Where a server sends a header
    byte by byte, no time-out of requests ends the read, and Ctrl-C would end nothing either.
    """
    result: Future[_Found] = Future()
    result.set_running_or_notify_cancel()

    def run() -> None:
        try:
            result.set_result(work())
        except Exception as error:  # noqa: BLE001 - whoever waits gets it
            result.set_exception(error)

    Thread(target=run, daemon=True).start()
    return await asyncio.wrap_future(result)
