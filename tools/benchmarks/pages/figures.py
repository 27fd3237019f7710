"""What the benchmark measures, and what follows from it. Pure."""

from dataclasses import dataclass
from typing import Final

PODS: Final = 4000
WINDOW_S: Final = 30.0
MOST_CORES: Final = 0.5
BOUND_MS: Final = MOST_CORES * WINDOW_S / PODS * 1000
"""Processor time of one pod and window."""


@dataclass(frozen=True, slots=True)
class PageCost:
    """Processor milliseconds of one page, medians."""

    page_bytes: int
    series: int
    library_ms: float
    """The library's parser over the lines that are wanted."""
    first_ms: float
    """At first sight of every series."""
    known_ms: float
    fetch_ms: float
    """Over HTTP, by a connection of its own, as long after the last one as looks are."""
    changed_ms: float
    """Fetched and read among hundreds of others, where the page shows a line for the first time."""
    look_ms: float
    """Fetched and read among hundreds of others, where it shows the lines that it showed before: so
    it is once a pod has been at its batches and depths."""

    @property
    def ratio(self) -> float:
        return self.library_ms / self.known_ms


@dataclass(frozen=True, slots=True)
class PrometheusCost:
    """A pod's look by a Prometheus: processor milliseconds, and KiB of its answers."""

    whole_ms: float
    """With all scrapes of the lookback."""
    whole_kib: float
    last_ms: float
    """With the last scrape alone, as the operator does."""
    last_kib: float


@dataclass(frozen=True, slots=True)
class TunerCost:
    """The tuner through one day of a world."""

    world: str
    pods: int
    decide_ms: float
    """Processor milliseconds of one decision, the mean."""
    looks: float
    """Per window of 30 s: each decision looks at every pod."""

    def window_ms(self, page: PageCost) -> float:
        """Processor milliseconds of one pod and window in all."""
        return self.looks * (page.look_ms + self.decide_ms / self.pods)

    def cores(self, page: PageCost) -> float:
        """Cores for 4,000 pods."""
        return self.window_ms(page) / 1000 * PODS / WINDOW_S


@dataclass(frozen=True, slots=True)
class PageFigures:
    """All of it."""

    page: PageCost
    prometheus: PrometheusCost
    tuners: tuple[TunerCost, ...]

    @property
    def dearest(self) -> TunerCost:
        return max(self.tuners, key=lambda each: each.window_ms(self.page))

    @property
    def holds(self) -> bool:
        return self.dearest.window_ms(self.page) <= BOUND_MS
