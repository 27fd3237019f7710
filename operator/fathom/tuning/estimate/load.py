"""When and at which batch the load is: busy seconds per hour of the day and batch bucket."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from fathom.core.measurement import Cell, CellCounts
from fathom.tuning.estimate.decay import decay

HOURS: Final = 24
"""Of a day, each with a load of its own."""
HALF_LIFE_S: Final = 7 * 24 * 3600.0
"""Of what an hour of the day had: it comes once a day, so several days count."""
EVEN_FACTOR: Final = 1.1
"""Hours whose loads differ by no more are alike: none of them is worth waiting for."""
_HOUR_S: Final = 3600.0
DAY_S: Final = HOURS * _HOUR_S
"""Before so much was seen, no hour is known to be quieter than this one."""


@dataclass(frozen=True, slots=True)
class HourLoad:
    """One hour of the day (UTC)."""

    hour: int
    busy_seconds: tuple[tuple[int, float], ...]
    """Pairs of bucket and busy seconds, discounted over a week."""
    watched_s: float = 0.0
    """Seconds that they were counted in, discounted alike: some hours were seen more often."""

    @property
    def busy(self) -> dict[int, float]:
        """Busy seconds per second and bucket; of all pods together, so they may exceed 1."""
        if self.watched_s <= 0:
            return {}
        return {bucket: each / self.watched_s for bucket, each in self.busy_seconds}

    @property
    def total(self) -> float:
        return sum(self.busy.values())


@dataclass(frozen=True, slots=True)
class Load:
    """The days so far."""

    hours: tuple[HourLoad, ...] = ()
    since_s: float = 0.0
    at_s: float = 0.0

    def updated(self, cells: Mapping[Cell, CellCounts], at_s: float, window_s: float) -> "Load":
        """With one more window of so many seconds, whose counts are of all pods together."""
        if not cells or window_s <= 0:
            return self
        hour = hour_of(at_s)
        before = next((each for each in self.hours if each.hour == hour), HourLoad(hour, ()))
        kept = decay(at_s - self.at_s, HALF_LIFE_S) if self.at_s else 1.0
        # Only this hour is discounted, by what passed since the last window: the others are when
        # their hour comes. So an hour that is looked at seldom fades as one looked at often.
        seconds = {bucket: kept * each for bucket, each in before.busy_seconds}
        for cell, counts in cells.items():
            seconds[cell.batch_le] = seconds.get(cell.batch_le, 0.0) + counts.step_seconds
        entry = HourLoad(
            hour,
            tuple(sorted((b, round(each, 3)) for b, each in seconds.items())),
            round(kept * before.watched_s + window_s, 3),
        )
        others = [each for each in self.hours if each.hour != hour]
        return Load(
            tuple(sorted((*others, entry), key=lambda each: each.hour)),
            self.since_s or at_s,
            at_s,
        )

    def is_trough(self, now_s: float) -> bool:
        """Whether this hour has hardly more than the median hour's load.

        Before a whole day was seen, every hour will do: nobody knows of a better one. After it, an
        hour that is not known had no requests.
        """
        if len(self.hours) < HOURS and self.at_s - self.since_s < DAY_S:
            return True
        known = {each.hour: each.total for each in self.hours}
        totals = sorted(known.get(hour, 0.0) for hour in range(HOURS))
        return known.get(hour_of(now_s), 0.0) <= EVEN_FACTOR * totals[HOURS // 2 - 1]


def hour_of(at_s: float) -> int:
    """Hour of the day, UTC."""
    return int(at_s // _HOUR_S) % HOURS
