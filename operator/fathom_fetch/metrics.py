"""The page at /metrics while a fetch runs."""

from collections.abc import Iterable

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from fathom_fetch.cache import CachedModel
from fathom_fetch.shown import PRESENT_BYTES, TOTAL_BYTES


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
