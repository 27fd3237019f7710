"""Queries to a Prometheus, or to whatever answers at its URL: bounded, answers checked."""

import json
import re
import ssl
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from http import HTTPStatus
from ipaddress import ip_address
from math import isfinite
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import urlsplit

import aiohttp

from fathom.adapters.http import (
    AUTHORIZATION,
    HEADER_TEXT,
    BadAnswerError,
    RefusedError,
    Room,
    TooLargeError,
    whole_answer,
)
from fathom.adapters.ports import Clock
from fathom.adapters.series import FAMILIES
from fathom.times import is_over

POD_LABELS: Final = ("pod", "kubernetes_pod_name")
NAMESPACE_LABELS: Final = ("namespace", "kubernetes_namespace")
"""By the Prometheus operator, and by the annotation-driven scrape configurations."""
LABEL_PAIRS: Final = tuple(zip(POD_LABELS, NAMESPACE_LABELS, strict=True))
NO_LABELS: Final[Mapping[str, str]] = MappingProxyType({})
LARGEST_CERTIFICATES: Final = 512 * 1024
"""Characters. Twice what a machine trusts; to read so many takes a tenth of a second, in which
nothing else runs, and anybody who may write a ConfigMap may have it read."""


class PrometheusUnreadableError(Exception):
    """There is no usable answer; the message says where and why, without the full stop."""


class PrometheusRefusedError(PrometheusUnreadableError):
    """It wants another login, other rights, or fewer questions: somebody must change something."""


class PrometheusAnswerTooLargeError(PrometheusUnreadableError):
    """Its answer is larger than one may be; one to a smaller question may do."""


class NoLoginError(Exception):
    """A login cannot be had; the message says why, as half a sentence."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """What is sent with a question."""

    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    tls: ssl.SSLContext | None = None
    """Whom to trust; None: whom this machine trusts."""


NOTHING: Final = Credentials()


class Login(ABC):
    """The credentials for one address, read again when they may have changed."""

    def __init__(self, url: str, *, whose: str, where: str, clock: Clock, fresh_s: float) -> None:
        """Read nothing yet.

        Args:
            url: the base URL that they are for.
            whose: what they are, for sentences, such as "the login of source central".
            where: they are set, for sentences.
            clock: says how old they are.
            fresh_s: seconds for which they are taken for the present ones.
        """
        self.url, self.whose, self.where = url, whose, where
        self._clock = clock
        self._fresh_s = fresh_s
        self._read: tuple[float, Credentials] | None = None
        self._trusted: tuple[str, ssl.SSLContext | None] = ("", None)
        """The certificates that are trusted, and what a connection is made with: one for all that
        are made, so that connections are used again. None: they are none."""

    async def credentials(self) -> Credentials:
        """As they are now, or were some seconds ago.

        Raises:
            NoLoginError: they are not there, or are none.
            BadAnswerError: where they are cannot be read now.
        """
        now_s = self._clock.now_s()
        if self._read is None or is_over(self._read[0], self._fresh_s, now_s):
            self._read = None
            self._read = (now_s, await self._now())
        return self._read[1]

    def refused(self) -> None:
        """They were not taken: others may be there by now."""
        self._read = None

    @abstractmethod
    async def _now(self) -> Credentials:
        """Read them."""

    def _text(self, content: str, place: str) -> str:
        """What a file or a key holds, where it may be part of a login."""
        text = content.strip()
        if not HEADER_TEXT.fullmatch(text):
            raise NoLoginError(
                f"{place} holds no part of {self.whose}: write one line of printable ASCII there "
                f"({self.where})"
            )
        return text

    def _tls(self, certificates: str, place: str) -> ssl.SSLContext:
        if self._trusted[0] != certificates:
            self._trusted = (certificates, _trusting(certificates))
        if self._trusted[1] is None:
            raise NoLoginError(
                f"{place} holds no certificates (PEM), or more than "
                f"{LARGEST_CERTIFICATES // 1024} KiB: correct it ({self.where})"
            )
        return self._trusted[1]


def _trusting(certificates: str) -> ssl.SSLContext | None:
    if len(certificates) > LARGEST_CERTIFICATES:
        return None
    # Comments beside them may be in any script.
    text = certificates.encode("ascii", "ignore").decode().strip()
    try:
        # It takes no text for no wish, and would trust whom the machine trusts.
        return ssl.create_default_context(cadata=text or "none")
    except (ssl.SSLError, ValueError):
        return None


@dataclass(frozen=True, slots=True)
class Series:
    """One series of a range selector's answer."""

    metric: dict[str, str]
    values: tuple[tuple[float, float], ...]
    """Pairs of Unix seconds and value, ascending; at least one."""

    @property
    def name(self) -> str:
        return self.metric.get("__name__", "")

    @property
    def pod(self) -> str:
        return next(self.metric[label] for label in POD_LABELS if label in self.metric)

    @property
    def ip(self) -> str:
        """Where it was scraped; empty: somebody relabelled it."""
        return _ip_in(self.metric.get("instance", ""))

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
        labels: Mapping[str, str] = NO_LABELS,
        login: Login | None = None,
    ) -> None:
        """Borrow a session; the caller closes it.

        Args:
            session: best one from `http_session`.
            url: base URL of the Prometheus.
            timeout_s: seconds one query may take in all.
            most_bytes: of one answer.
            room: shared with other answers that are read at the same time.
            labels: that every series has to have, beside what a question names.
            login: sent to this URL; None: none.
        """
        self.where = f"Prometheus at {host_in(url)}"
        self._session = session
        self._url = f"{url.rstrip('/')}/api/v1/query"
        self._timeout_s = timeout_s
        self._most_bytes = most_bytes
        self._room = room
        self._login = login
        self.labels = labels
        self._of_all = [(label, any_of([value])) for label, value in labels.items()]

    async def series(
        self,
        patterns: Mapping[str, str],
        lookback_s: float,
        *,
        families: Collection[str] = FAMILIES,
        at_s: float | None = None,
    ) -> tuple[Series, ...]:
        """Ask for a range selector's series. Idempotent.

        Args:
            patterns: an anchored regular expression (RE2) per label.
            lookback_s: length of the range in seconds, to the millisecond.
            families: that are asked for; unless given, all that are read.
            at_s: the end of the range (Unix seconds); None: now.

        Raises:
            PrometheusAnswerTooLargeError: its answer is larger than one may be.
            PrometheusRefusedError: its status is 401, 403 or 429, or there is no login to send.
            PrometheusUnreadableError: it is away, too slow, or is no Prometheus.
        """
        query = selector([*patterns.items(), *self._of_all], lookback_s, families)
        time = {} if at_s is None else {"time": str(at_s)}
        sent = NOTHING
        try:
            if self._login is not None:
                sent = await self._login.credentials()
            answer = await whole_answer(
                self._session,
                self._url,
                params={"query": query, **time},
                most_bytes=self._most_bytes,
                timeout_s=self._timeout_s,
                room=self._room,
                headers=sent.headers,
                tls=sent.tls,
            )
            return tuple(series_of(json.loads(answer)["data"]["result"]))
        except TooLargeError as error:
            raise PrometheusAnswerTooLargeError(self._unreadable(str(error))) from error
        except RefusedError as error:
            raise self._refused(error, sent) from error
        except NoLoginError as error:
            raise PrometheusRefusedError(self._unreadable(str(error))) from error
        except BadAnswerError as error:
            raise self.unreadable(str(error)) from error
        except (ValueError, LookupError, TypeError, OverflowError, RecursionError) as error:
            raise self.unreadable(
                f"its answer is not a Prometheus's; check the URL ({self._set_at})"
            ) from error

    def unreadable(self, why: str) -> PrometheusUnreadableError:
        return PrometheusUnreadableError(self._unreadable(why))

    @property
    def _set_at(self) -> str:
        return "metrics.prometheusURL" if self._login is None else self._login.where

    def _refused(self, error: RefusedError, sent: Credentials) -> PrometheusUnreadableError:
        """Who has to do what about this status."""
        login = self._login
        if error.status == HTTPStatus.TOO_MANY_REQUESTS:
            cause, cure = "it is asked more often than it allows", "raise its limit"
        elif error.status not in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
            return self.unreadable(str(error))
        elif login is None:
            cause, cure = "it asks for a login", "name a source in metrics.prometheus"
        elif error.status == HTTPStatus.UNAUTHORIZED and AUTHORIZATION not in sent.headers:
            cause, cure = "it asks for a login", f"set one ({login.where})"
        elif error.status == HTTPStatus.UNAUTHORIZED:
            login.refused()
            cause, cure = f"it does not take {login.whose}", f"correct it ({login.where})"
        else:
            cause, cure = f"{login.whose} may not query it", "give it the right to"
        why = f"{cause} (HTTP status {error.status}); {cure}"
        return PrometheusRefusedError(self._unreadable(why))

    def _unreadable(self, why: str) -> str:
        return f"{self.where} cannot be read: {why}"


def any_of(values: Iterable[str]) -> str:
    """A pattern that matches exactly these label values."""
    return "|".join(re.escape(value) for value in values)


def selector(
    patterns: Iterable[tuple[str, str]], lookback_s: float, families: Collection[str] = FAMILIES
) -> str:
    """A range selector.

    Args:
        patterns: labels, and for each an anchored regular expression (RE2). All hold, also of two
            for one label.
        lookback_s: length of the range in seconds, to the millisecond.
        families: that are asked for; unless given, all that are read.
    """
    matchers = [("__name__", any_of(sorted(families))), *patterns]
    # A PromQL string literal's escapes are JSON's and more, but for halves of characters.
    terms = ",".join(
        f"{label}=~{json.dumps(pattern, ensure_ascii=False)}" for label, pattern in matchers
    )
    return f"{{{terms}}}[{round(1000 * lookback_s)}ms]"


@lru_cache(maxsize=8192)  # asked of each series, and all of a scrape say the same
def _ip_in(instance: str) -> str:
    host = instance.rpartition(":")[0].strip("[]")
    try:
        ip_address(host)
    except ValueError:
        return ""
    return host


def host_in(url: str) -> str:
    """Host of a URL, for sentences: the rest of the URL may hold what no one else should see."""
    try:
        return urlsplit(url).netloc.rpartition("@")[2] or "a URL without a host"
    except ValueError:
        return "a URL without a host"


def series_of(result: Any) -> Iterator[Series]:
    """The series of a range selector's answer, which is its `data.result`.

    By hand, and up to the first thing that is wrong: pydantic would list all of them, and a few
    megabytes of nonsense become gigabytes of complaints.

    Raises:
        ValueError, LookupError, TypeError, OverflowError, RecursionError: it is not a Prometheus's.
    """
    for each in result:
        metric = each["metric"]
        # Hundreds of thousands of these, hence in C where that is as short.
        moments = [float(at_s) for at_s, _ in each["values"]]
        if not moments or not all(map(isfinite, moments)):
            raise ValueError
        if not isinstance(metric, dict) or not set(map(type, metric.values())) <= {str}:
            raise TypeError
        if metric.keys().isdisjoint(POD_LABELS):
            raise LookupError
        values = [float(value) for _, value in each["values"]]
        yield Series(metric, tuple(zip(moments, values, strict=True)))
