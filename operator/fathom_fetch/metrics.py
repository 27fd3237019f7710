"""What a fetch shows of itself while it runs, to be read by the operator."""

from collections.abc import Iterable
from typing import Final

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from fathom_fetch.cache import CachedModel

PORT: Final = 8080
"""Port of the pod's /metrics."""

TOTAL_BYTES: Final = "fathom_fetch_total_bytes"
"""Bytes of the files of one model that are wanted; absent until the hub has said so."""
PRESENT_BYTES: Final = "fathom_fetch_present_bytes"
"""Bytes of them that are in the cache, those of an earlier fetch included."""

MODEL: Final = "model"
DRAFT: Final = "draft"
"""Values of the label `role`, and keys of the message that a fetch leaves when it has ended."""

COMMIT: Final = "commit"
BYTES: Final = "bytes"
"""What that message tells of each role."""


class FetchCollector(Collector):
    """Looks at the disk when it is asked, and only then."""

    def __init__(self) -> None:
        self._models: dict[str, CachedModel] = {}

    def show(self, models: dict[str, CachedModel]) -> None:
        """From now on, these, by role. Before, nothing is shown: unknown is not zero."""
        self._models = models

    def collect(self) -> Iterable[GaugeMetricFamily]:
        total = GaugeMetricFamily(TOTAL_BYTES, "Bytes of the files wanted.", labels=["role"])
        present = GaugeMetricFamily(
            PRESENT_BYTES, "Of them, bytes that are in the cache.", labels=["role"]
        )
        for role, model in self._models.items():
            if (wanted := model.total_bytes) is not None:
                total.add_metric([role], wanted)
            present.add_metric([role], model.present_bytes())
        return [total, present]
