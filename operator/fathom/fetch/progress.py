"""How far a fetch is, how fast, and how long it will take: from successive looks. Pure."""

from dataclasses import dataclass
from typing import Final

from fathom.times import duration

WINDOW_S: Final = 60.0
"""Over which the rate is taken: a hub's rate varies from second to second."""
_UNITS: Final = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB")
_STEP: Final = 1024


@dataclass(frozen=True, slots=True)
class FetchedBytes:
    """One look at a fetch."""

    at_s: float
    """Unix seconds."""
    present: int
    total: int
    """Larger than 0."""


@dataclass(frozen=True, slots=True)
class FetchProgress:
    """The looks of the last minute, the newest last; empty: none yet."""

    looks: tuple[FetchedBytes, ...] = ()

    def after(self, look: FetchedBytes) -> "FetchProgress":
        """With one more look. Another total, or fewer bytes than before, begins again."""
        last = self.looks[-1] if self.looks else None
        if last is None or last.total != look.total or last.present > look.present:
            return FetchProgress((look,))
        recent = tuple(each for each in self.looks if look.at_s - each.at_s <= WINDOW_S)
        return FetchProgress((*recent, look))

    @property
    def percent(self) -> int | None:
        """Rounded down; None: nothing was seen yet."""
        if not self.looks:
            return None
        return 100 * self.looks[-1].present // self.looks[-1].total

    @property
    def bytes_per_second(self) -> float | None:
        """None: too little was seen to say."""
        seconds = self._seconds
        return (self.looks[-1].present - self.looks[0].present) / seconds if seconds else None

    @property
    def _seconds(self) -> float:
        return self.looks[-1].at_s - self.looks[0].at_s if self.looks else 0.0

    @property
    def summary(self) -> str:
        """Bytes of bytes, rate, time left, as far as they are known."""
        if not self.looks:
            return "starting"
        last = self.looks[-1]
        said = f"{size(last.present)} of {size(last.total)}"
        rate = self.bytes_per_second
        if rate is None:
            return said
        if not rate:
            return f"{said}, nothing came in the last {self._seconds:.0f} s"
        left_s = (last.total - last.present) / rate
        return f"{said}, {size(rate)}/s, {duration(left_s)} left"


def size(count: float) -> str:
    """Bytes in the unit that fits, three digits at most."""
    power = 0
    while count >= _STEP and power < len(_UNITS) - 1:
        count /= _STEP
        power += 1
    few = power and count < 10  # noqa: PLR2004  # two digits
    return f"{count:.1f} {_UNITS[power]}" if few else f"{count:.0f} {_UNITS[power]}"
