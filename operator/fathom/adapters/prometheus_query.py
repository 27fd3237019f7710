"""Queries to a Prometheus: asked off the event loop, with a timeout, answers checked."""

import asyncio
import json
import re
from collections.abc import Iterable
from typing import Annotated, Final

import requests
from prometheus_api_client import PrometheusConnect
from prometheus_api_client.exceptions import PrometheusApiClientException
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from urllib3.util.retry import Retry

from fathom.adapters.exposition import FAMILIES

POD_LABELS: Final = ("pod", "kubernetes_pod_name")
NAMESPACE_LABELS: Final = ("namespace", "kubernetes_namespace")
"""By the Prometheus operator, and by the annotation-driven scrape configurations."""


class PrometheusUnreadableError(Exception):
    """There is no usable answer; the message is a sentence."""


class Series(BaseModel):
    """One series of a range selector's answer."""

    model_config = ConfigDict(frozen=True)

    metric: dict[str, str]
    values: Annotated[tuple[tuple[float, float], ...], Field(min_length=1)]
    """Pairs of Unix seconds and value, ascending."""

    @property
    def name(self) -> str:
        return self.metric.get("__name__", "")

    @property
    def pod(self) -> str:
        return next(self.metric[label] for label in POD_LABELS if label in self.metric)

    @property
    def target(self) -> tuple[str, str]:
        return (self.metric.get("job", ""), self.metric.get("instance", ""))


_ANSWER: Final = TypeAdapter(tuple[Series, ...])


class PrometheusQuery:
    """One Prometheus. Nothing is sent before the first question."""

    def __init__(self, url: str, timeout_s: float) -> None:
        """Connect lazily.

        Args:
            url: base URL of the Prometheus.
            timeout_s: seconds one query may take.
        """
        self.url = url.rstrip("/")
        self._timeout_s = timeout_s
        # Without a session and retry policy of ours, the library retries for many seconds.
        self._session = requests.Session()
        self._client = PrometheusConnect(
            url=self.url, session=self._session, retry=Retry(total=0), timeout=timeout_s
        )

    def close(self) -> None:
        """Release the connections."""
        self._session.close()

    async def series(self, query: str, at_s: float | None = None) -> tuple[Series, ...]:
        """Ask for a range selector's series. Idempotent.

        Args:
            query: an instant query that is a range selector.
            at_s: the end of its range (Unix seconds); None: now.

        Raises:
            PrometheusUnreadableError: it is away, too slow, refuses, or is no Prometheus.
        """
        params = {} if at_s is None else {"time": at_s}
        try:
            async with asyncio.timeout(self._timeout_s):
                answer = await asyncio.to_thread(self._client.custom_query, query, params)
            return _ANSWER.validate_python(answer)
        except (TimeoutError, requests.Timeout) as error:
            raise self._unreadable(f"no answer within {self._timeout_s:g} s") from error
        except PrometheusApiClientException as error:
            raise self._unreadable(f"it refused the query: {error}") from error
        except (ValidationError, requests.JSONDecodeError, KeyError, TypeError) as error:
            raise self._unreadable(
                "its answer is not a Prometheus's; check the URL (metrics.prometheusURL)"
            ) from error
        except requests.RequestException as error:
            raise self._unreadable(str(error)) from error

    def _unreadable(self, why: str) -> PrometheusUnreadableError:
        return PrometheusUnreadableError(f"Prometheus at {self.url} cannot be read: {why}.")


def any_of(values: Iterable[str]) -> str:
    """A pattern that matches exactly these label values."""
    return "|".join(re.escape(value) for value in values)


def selector(patterns: dict[str, str], lookback_s: int) -> str:
    """A range selector over every family that is read.

    Args:
        patterns: an anchored regular expression (RE2) per label.
        lookback_s: length of the range in seconds.
    """
    matchers = {"__name__": any_of(sorted(FAMILIES)), **patterns}
    # A PromQL string literal's escapes are a superset of JSON's.
    terms = ",".join(f"{label}=~{json.dumps(pattern)}" for label, pattern in matchers.items())
    return f"{{{terms}}}[{lookback_s}s]"
