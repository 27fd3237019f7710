"""What the traffic does, and for how long each part is watched."""

from dataclasses import dataclass
from typing import Final

from fathom_local.engine.traffic import Phase
from fathom_local.engine.walk import EASY, HARD

PHASES: Final = (
    Phase(EASY, concurrency=2),
    Phase(HARD, concurrency=8),
    Phase(EASY, concurrency=8),
)
"""Drafts for easy traffic are nearly always right, for hard traffic nearly never."""


def title(phase: Phase) -> str:
    """What a person calls a phase."""
    return f"{phase.traffic.name} × {phase.concurrency}"


@dataclass(frozen=True, slots=True)
class Timing:
    """Lengths in seconds. Set-up apart, the whole demo stays below 15 minutes."""

    adapt_seconds: float = 90.0
    """After each change of traffic, before anything is compared."""
    slice_seconds: float = 5.0
    pairs: int = 8
    """Pairs of slices per phase, tuned and static in turn."""
    sweep_seconds: float = 3.0
    """For each static depth, phase and round of the closing sweep."""
    sweep_rounds: int = 2
    settle_seconds: float = 3.0
    """After traffic changed, before a sweep measures."""
