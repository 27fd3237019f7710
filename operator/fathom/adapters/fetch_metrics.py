from typing import Final

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from fathom.adapters.answers import BadAnswerError, whole_answer
from fathom.adapters.ports import Clock, PodEndpoint
from fathom.fetch.progress import FetchedBytes
from fathom_fetch.shown import PRESENT_BYTES, TOTAL_BYTES

TIMEOUT_S: Final = 5.0
LARGEST_PAGE_BYTES: Final = 64 * 1024


class FetchMetrics:
    """Reads the /metrics of a pod that fetches. A `FetchPort`."""

    def __init__(
        self, session: aiohttp.ClientSession, clock: Clock, *, timeout_s: float = TIMEOUT_S
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
                most_bytes=LARGEST_PAGE_BYTES,
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
