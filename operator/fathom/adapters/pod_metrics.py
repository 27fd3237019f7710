import asyncio
from collections.abc import Sequence
from typing import Final

import aiohttp

from fathom.adapters.answers import first_bytes
from fathom.adapters.exposition import NotAnEngine, parse
from fathom.adapters.ports import Clock, PodEndpoint, Sample
from fathom.core.measurement import PodCounters

TIMEOUT_S: Final = 5.0
CONCURRENCY: Final = 16
LARGEST_PAGE_BYTES: Final = 8 * 1024 * 1024
"""A vLLM shows about 200 KiB; a page far beyond is not one, and must not fill our memory."""


class PodMetrics:
    """Reads each pod's own /metrics. A `MetricsPort`: never raises for what it cannot read."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        clock: Clock,
        *,
        timeout_s: float = TIMEOUT_S,
        concurrency: int = CONCURRENCY,
    ) -> None:
        """Borrow a session; the caller closes it.

        Args:
            session: shared by all readers.
            clock: stamps each page at the time it had arrived.
            timeout_s: seconds one pod may take in all.
            concurrency: pods read at the same time.
        """
        self._session = session
        self._clock = clock
        self._timeout = aiohttp.ClientTimeout(total=timeout_s)
        self._timeout_s = timeout_s
        self._slots = asyncio.Semaphore(concurrency)

    async def sample(self, pods: Sequence[PodEndpoint]) -> Sample:
        """Read the counters of these pods, each at its own time. Idempotent."""
        results = await asyncio.gather(*(self._read(pod) for pod in pods))
        return Sample(
            counters=tuple(each for each in results if isinstance(each, PodCounters)),
            failures=tuple(each for each in results if isinstance(each, str)),
        )

    async def _read(self, pod: PodEndpoint) -> PodCounters | str:
        url = pod.url("/metrics")
        where = f"Metrics of pod {pod.namespace}/{pod.pod} at {url}"
        try:
            text = await self._page(url)
            return parse(text, pod=pod.pod, at_s=self._clock.now_s())
        except TimeoutError:
            return f"{where} cannot be read: no answer within {self._timeout_s:g} s."
        except NotAnEngine as error:
            return f"{where} cannot be used: {error}."
        except UnicodeDecodeError:
            return f"{where} cannot be used: it is not UTF-8 text."
        except (aiohttp.ClientError, OSError, ValueError) as error:
            return f"{where} cannot be read: {str(error) or type(error).__name__}."

    async def _page(self, url: str) -> str:
        async with (
            self._slots,
            self._session.get(
                url, timeout=self._timeout, allow_redirects=False, raise_for_status=True
            ) as response,
        ):
            page = await first_bytes(response, LARGEST_PAGE_BYTES + 1)
            if len(page) > LARGEST_PAGE_BYTES:
                raise NotAnEngine(f"it is larger than {LARGEST_PAGE_BYTES} bytes")
            return page.decode()
