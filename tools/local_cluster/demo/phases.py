"""What the traffic does, what depth it asks for, and for how long each part lasts."""

from dataclasses import dataclass
from enum import Enum
from typing import Final

from local_cluster.engine.language import EASY, HARD
from local_cluster.engine.traffic import Phase


class Asks(Enum):
    """Where traffic asks depth to go from where it is: the pair is built so."""

    DEEPER = "deeper"
    SHALLOWER = "shallower"

    def moved(self, before: int, now: int) -> bool:
        """Whether depth has gone that way."""
        return now > before if self is Asks.DEEPER else now < before


@dataclass(frozen=True, slots=True)
class Scene:
    """Traffic, and where it asks depth to go."""

    phase: Phase
    asks: Asks


SCENES: Final = (Scene(Phase(EASY, 4), Asks.DEEPER), Scene(Phase(HARD, 4), Asks.SHALLOWER))
"""Drafts for easy traffic are nearly always right, for hard traffic nearly never."""


def title(phase: Phase) -> str:
    """What a person calls a phase."""
    return f"{phase.traffic.name} × {phase.concurrency}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoTiming:
    """Lengths in seconds."""

    move_seconds: float = 300.0
    """The most that depth is waited for in each scene: ten times what a quiet machine takes."""
    stays_seconds: float = 10.0
    """For so long depth has to be where the traffic asks."""
    adapt_seconds: float = 60.0
    """The most before a comparison, until the tuner's depth is another one than the static."""
    slice_seconds: float = 2.5
    pairs: int = 6
    """Pairs of slices in each comparison."""
