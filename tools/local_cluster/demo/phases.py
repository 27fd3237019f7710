"""What the traffic does, and for how long each part is watched."""

from dataclasses import dataclass
from typing import Final

from local_cluster.demo.compare import CONFIDENCE
from local_cluster.engine.language import EASY, HARD
from local_cluster.engine.traffic import Phase

PHASES: Final = (
    Phase(EASY, concurrency=2),
    Phase(HARD, concurrency=8),
    Phase(EASY, concurrency=8),
)
"""Drafts for easy traffic are nearly always right, for hard traffic nearly never."""

MISS_EACH: Final = (1 - CONFIDENCE) / (len(PHASES) + 1)
"""Error of one comparison, so that those of a demo, one per phase and one of depths, are right
all at once."""


def title(phase: Phase) -> str:
    """What a person calls a phase."""
    return f"{phase.traffic.name} × {phase.concurrency}"


@dataclass(frozen=True, slots=True)
class DemoTiming:
    """Lengths in seconds.

    On a quiet machine about five minutes from the first request to the verdict, and where no
    interval decides about a quarter of an hour.
    """

    adapt_seconds: float = 20.0
    """After each change of traffic, before anything is compared."""
    slice_seconds: float = 2.5
    limit_seconds: float = 150.0
    """The most for one comparison; most decide in a third of it."""
    sweep_seconds: float = 2.0
    """For each static depth, phase and round of the closing sweep."""
    sweep_rounds: int = 1
    settle_seconds: float = 3.0
    """After traffic changed, before a sweep measures."""
