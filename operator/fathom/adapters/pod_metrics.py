import asyncio
from collections.abc import Sequence
from http import HTTPStatus
from typing import Final
from urllib.parse import quote

import aiohttp
from kubernetes.aio.client import ApiClient
from kubernetes.aio.client.exceptions import ApiException
from prometheus_client.parser import text_string_to_metric_families

from fathom.adapters.http import (
    BadAnswerError,
    NoAnswerError,
    NoTurnError,
    Room,
    TooLargeError,
    cause_of,
    first_bytes,
    refusal,
    turn,
    whole_answer,
)
from fathom.adapters.kube_answers import decoded
from fathom.adapters.metrics_page import PageReader, Remembered
from fathom.adapters.ports import Clock, PodEndpoint, Sample
from fathom.adapters.series import NotAnEngine
from fathom.fetch.state import FetchedBytes
from fathom.measurement.counters import PodCounters, Unread, UnreadKind
from fathom_fetch.metrics import PRESENT_BYTES, TOTAL_BYTES

TIMEOUT_S: Final = 5.0
CONNECT_S: Final = 2.0
"""Within a cluster a connection takes milliseconds, or a second where its first packet is lost. One
that is still not there comes to nothing, as where a NetworkPolicy drops what is sent."""
AT_ONCE: Final = 256
"""Pods of all resources that are read at the same time: so many pages take us half a second, and
that is within the time that each pod has. And as many again of those that gave no answer last: they
keep a turn for seconds, and would stand before those that answer at once."""
CONCURRENCY: Final = 16
"""Pods of one resource that are read at a time: were all to hang, others would still get turns."""
LARGEST_PAGE_BYTES: Final = 8 * 1024 * 1024
"""A vLLM shows about 200 KiB; a page far beyond is not one, and must not fill our memory."""
ROOM_BYTES: Final = 32 * 1024 * 1024
"""Memory for all pages that are on their way."""
_SILENT_BYTES: Final = 4 * 1024 * 1024
"""Memory for what is known of pods that give no answer: some 5,000 in each half."""


_PLUGIN_INFO: Final = b"fathom_plugin_info{"
_POD_NAME, _POD_UID = b'pod_name="', b'pod_uid="'
FETCH_TIMEOUT_S: Final = 5.0
LARGEST_FETCH_PAGE_BYTES: Final = 64 * 1024


def _another_pod(page: bytes, pod: PodEndpoint) -> str:
    """What a page says that it is of, where that is another pod; empty: it is of this one.

    Or it does not say: it is an older plugin's, or there is none.
    """
    found = page.find(_PLUGIN_INFO)
    line = page[found : page.find(b"\n", found)] if found >= 0 else b""
    name, uid = (
        line.partition(label)[2].partition(b'"')[0].decode(errors="replace")
        for label in (_POD_NAME, _POD_UID)
    )
    if name not in {"", pod.pod}:
        return f"pod {name}"
    return "another pod of this name" if uid and pod.uid not in {"", uid} else ""


class PodMetrics:
    """Reads each pod's own /metrics. A `MetricsPort`: never raises for what it cannot read."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        clock: Clock,
        *,
        timeout_s: float = TIMEOUT_S,
        connect_s: float = CONNECT_S,
        at_once: int = AT_ONCE,
        concurrency: int = CONCURRENCY,
        largest_page_bytes: int = LARGEST_PAGE_BYTES,
        room_bytes: int = ROOM_BYTES,
    ) -> None:
        """Borrow a session; the caller closes it.

        Args:
            session: shared by all readers.
            clock: stamps each page at the time it had arrived.
            timeout_s: seconds one pod may take in all, from its turn on.
            connect_s: of them, until there is a connection.
            at_once: pods read at the same time; as many again of those that gave no answer last.
            concurrency: of them, those of one look.
            largest_page_bytes: of a page that is read.
            room_bytes: of all pages that are read at the same time.
        """
        self._session = session
        self._clock = clock
        self._timeout_s = timeout_s
        self._connect_s = connect_s
        self._turns = asyncio.Semaphore(at_once)
        self._turns_apart = asyncio.Semaphore(at_once)
        self._silent: Remembered[str, str] = Remembered(_SILENT_BYTES, len)
        """Failure of each pod that gave no answer when it was asked last."""
        self._concurrency = concurrency
        self._largest_page_bytes = largest_page_bytes
        self._room = Room(room_bytes)
        self._pages = PageReader()

    async def sample(self, pods: Sequence[PodEndpoint]) -> Sample:
        """Read the counters of these pods, each at its own time. Idempotent."""
        # Turns come in the order in which they were asked for, and no look asks for more than these
        # at a time: one with very many pods, or slow ones, holds up no other resource's.
        slots = asyncio.Semaphore(self._concurrency)
        results = await asyncio.gather(*(self._read(pod, slots) for pod in pods))
        return Sample(
            counters=tuple(each for each in results if isinstance(each, PodCounters)),
            failures=tuple(each for each in results if isinstance(each, Unread)),
        )

    async def _read(self, pod: PodEndpoint, slots: asyncio.Semaphore) -> PodCounters | Unread:
        try:
            async with slots:
                page = await self._page(pod)
            if other := _another_pod(page, pod):
                cause = f"/metrics at {pod.ip} is that of {other}, which has the address now"
                return Unread(pod.pod, cause)
            return self._pages.read(page, pod=pod.pod, at_s=self._clock.now_s())
        except BadAnswerError as error:
            cause = f"/metrics on port {pod.port} cannot be read: {error}"
        except NotAnEngine as error:
            cause = f"/metrics on port {pod.port} cannot be used: {error}"
            return Unread(pod.pod, cause, UnreadKind.NOT_VLLM)
        return Unread(pod.pod, cause)

    async def _page(self, pod: PodEndpoint) -> bytes:
        """Its page, once it is its turn.

        Raises:
            BadAnswerError: there is none.
        """
        url = pod.url("/metrics")
        # Whoever gets the address of a pod that is gone has been asked nothing yet.
        key = f"{pod.namespace}/{pod.pod} {url}"
        if (silence := self._silent.find(key)) is None:
            async with self._turns:
                return await self._answer(url, key)
        try:
            async with turn(self._turns_apart, self._timeout_s):
                return await self._answer(url, key)
        except NoTurnError:
            # Its resource's other pods answer, perhaps, and must not wait for all pods that hang.
            raise NoAnswerError(silence) from None

    async def _answer(self, url: str, key: str) -> bytes:
        try:
            page = await whole_answer(
                self._session,
                url,
                most_bytes=self._largest_page_bytes,
                timeout_s=self._timeout_s,
                connect_s=self._connect_s,
                room=self._room,
            )
        except NoAnswerError as error:
            self._silent.keep(key, str(error))
            raise
        except BadAnswerError:
            self._silent.forget(key)
            raise
        self._silent.forget(key)
        return page


class ForbiddenPageError(BadAnswerError):
    """Whoever asks lacks the right to read a pod through the API server."""


class ProxiedPages:
    """Reads each pod's own /metrics through the API server, with the rights of whoever asks.

    So it is read from where no pod's address can be reached, as by `kubectl get --raw`.
    """

    def __init__(
        self,
        api: ApiClient,
        *,
        timeout_s: float = TIMEOUT_S,
        largest_page_bytes: int = LARGEST_PAGE_BYTES,
    ) -> None:
        """Borrow a client; the caller closes it.

        Args:
            api: of the API server.
            timeout_s: seconds one pod may take in all.
            largest_page_bytes: of a page that is read.
        """
        self._api = api
        self._timeout_s = timeout_s
        self._largest_page_bytes = largest_page_bytes

    async def page(self, pod: PodEndpoint, path: str = "metrics") -> str:
        """What a pod shows. Idempotent.

        Args:
            pod: where it is.
            path: of the page, without a slash before it.

        Raises:
            ForbiddenPageError: the API server does not let whoever asks read it.
            BadAnswerError: there is no such page.
        """
        try:
            async with asyncio.timeout(self._timeout_s):
                status, body = await self._answer(pod, path)
        except TimeoutError as error:
            raise NoAnswerError(f"no answer within {self._timeout_s:g} s") from error
        except (aiohttp.ClientError, ApiException, OSError, ValueError) as error:
            raise BadAnswerError(cause_of(error)) from error
        if status == HTTPStatus.FORBIDDEN and is_of_api_server(body):
            raise ForbiddenPageError(
                "the API server does not let you: it takes the right to `get` `pods/proxy` in "
                f"namespace {pod.namespace}"
            )
        if status != HTTPStatus.OK:
            raise BadAnswerError(refusal(status))
        if len(body) > self._largest_page_bytes:
            raise TooLargeError(f"its answer is larger than {self._largest_page_bytes} bytes")
        return body.decode(errors="replace")

    async def _answer(self, pod: PodEndpoint, path: str) -> tuple[int, bytes]:
        """Status and body, the latter one byte longer than may be where it is too long."""
        place = f"namespaces/{quote(pod.namespace)}/pods/{quote(pod.pod)}:{pod.port}"
        request = await self._api.param_serialize(
            "GET",
            f"/api/v1/{place}/proxy/{path}",
            header_params={"Accept-Encoding": "identity"},
            auth_settings=["BearerToken"],
        )
        response: aiohttp.ClientResponse = (await self._api.call_api(*request)).response
        try:
            return response.status, await first_bytes(response, self._largest_page_bytes + 1)
        finally:
            response.close()


def is_of_api_server(body: bytes) -> bool:
    """Whether the API server refused, and not the pod behind it."""
    told = decoded(body)
    return isinstance(told, dict) and told.get("kind") == "Status"


class FetchMetrics:
    """Reads the /metrics of a pod that fetches. A `FetchPort`."""

    def __init__(
        self, session: aiohttp.ClientSession, clock: Clock, *, timeout_s: float = FETCH_TIMEOUT_S
    ) -> None:
        """Borrow a session; the caller closes it.

        Args:
            session: shared by all readers.
            clock: stamps each look.
            timeout_s: seconds one pod may take in all.
        """
        self._session = session
        self._clock = clock
        self._timeout_s = timeout_s

    async def look(self, pod: PodEndpoint) -> FetchedBytes | None:
        """Bytes of all models together; None: not to be had now. Idempotent."""
        try:
            page = await whole_answer(
                self._session,
                pod.url("/metrics"),
                most_bytes=LARGEST_FETCH_PAGE_BYTES,
                timeout_s=self._timeout_s,
            )
            sums = _sums(page.decode())
        except (BadAnswerError, ValueError):
            return None
        total, present = sums.get(TOTAL_BYTES), sums.get(PRESENT_BYTES)
        if not total or present is None:
            return None
        return FetchedBytes(self._clock.now_s(), int(present), int(total))


def _sums(page: str) -> dict[str, float]:
    """Each family's samples, added up; a family without samples is absent.

    Raises:
        ValueError: this is no such page.
    """
    return {
        family.name: sum(sample.value for sample in family.samples)
        for family in text_string_to_metric_families(page)
        if family.samples
    }
