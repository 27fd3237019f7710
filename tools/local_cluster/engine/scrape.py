"""One look at an engine's `/metrics`, for tests, sweeps and the demo."""

from dataclasses import dataclass

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

_TIMEOUT = aiohttp.ClientTimeout(total=60)


@dataclass(frozen=True, slots=True)
class ScrapedSample:
    """One line of the exposition."""

    name: str
    labels: dict[str, str]
    value: float


@dataclass(frozen=True, slots=True)
class EngineScrape:
    """All of them."""

    samples: tuple[ScrapedSample, ...]

    def total(self, name: str, **labels: str) -> float:
        """The sum over the samples of a name whose labels include the given ones; 0 if none."""
        return sum(
            sample.value
            for sample in self.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        )

    def labels(self, name: str, label: str) -> list[str]:
        """The values of one label, sample by sample."""
        return [sample.labels[label] for sample in self.samples if sample.name == name]


async def scrape(base_url: str) -> EngineScrape:
    """Read an engine's metrics.

    Raises:
        aiohttp.ClientError: the engine does not answer.
        TimeoutError: not within a minute.
    """
    async with (
        aiohttp.ClientSession(timeout=_TIMEOUT) as session,
        session.get(f"{base_url}/metrics", raise_for_status=True) as response,
    ):
        text = await response.text()
    return EngineScrape(
        tuple(
            ScrapedSample(sample.name, dict(sample.labels), sample.value)
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        )
    )
