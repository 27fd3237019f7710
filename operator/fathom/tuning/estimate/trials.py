"""What came of drafts, position by position. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import zip_longest
from typing import Final

from fathom.core.measurement import DraftCell, DraftCounts, position_at


@dataclass(frozen=True, slots=True)
class Trials:
    """Drafts that reached each position, and those accepted there."""

    reached: tuple[float, ...] = ()
    accepted: tuple[float, ...] = ()

    def __add__(self, other: "Trials") -> "Trials":
        return Trials(
            _sum(self.reached, other.reached),
            _sum(self.accepted, other.accepted),
        )

    def scaled(self, factor: float) -> "Trials":
        return Trials(
            tuple([factor * each for each in self.reached]),
            tuple([factor * each for each in self.accepted]),
        )


def _sum(one: tuple[float, ...], two: tuple[float, ...]) -> tuple[float, ...]:
    return tuple([a + b for a, b in zip_longest(one, two, fillvalue=0.0)])


def trials(drafts: Mapping[DraftCell, DraftCounts]) -> Trials:
    """Trials per position: position i only over drafts deeper than i."""
    total = Trials()
    for cell, counts in drafts.items():
        accepted = tuple(position_at(counts.accepted, i) for i in range(cell.depth))
        total += Trials((counts.drafts, *accepted)[: cell.depth], accepted)
    return total


NO_TRIALS: Final = Trials()
