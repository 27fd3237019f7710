"""What is done, how often, and for how long. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

Side = Literal["live", "single"]
ABBA: Final[tuple[Side, ...]] = ("live", "single", "single", "live")
"""Whose turn it is: what drifts slowly falls on both."""
SETTLE_SECONDS: Final = 0.7
"""From the first request to a full batch."""
_LAST_REQUESTS_SECONDS: Final = 1.5
"""From the end of a turn until what is in flight is answered: an H100 took so long for the pair."""


@dataclass(frozen=True, slots=True)
class GpuBenchPlan:
    """Lengths in seconds; starting engines comes on top."""

    batches: tuple[int, ...]
    max_tokens: int
    """Tokens of each request."""
    start_timeout_seconds: float
    """Time limit for one engine: on a GPU it compiles, and captures graphs."""
    change_rounds: int = 2
    """How often each depth is written at each batch."""
    change_seconds: float = 1.5
    turn_rounds: int = 3
    """How often both engines of a comparison have two turns at each batch."""
    turn_seconds: float = 1.0
    requests: int = 48
    """Whose tokens are compared."""

    @property
    def whole_turn_seconds(self) -> float:
        """From one turn to the next, about."""
        return SETTLE_SECONDS + self.turn_seconds + _LAST_REQUESTS_SECONDS

    def total_seconds(self, depths: Sequence[int]) -> float:
        """What all of it takes, about."""
        changes = self.change_rounds * len(depths) * self.change_seconds
        turns = self.turn_rounds * len(ABBA) * self.whole_turn_seconds
        return len(self.batches) * (changes + len(depths) * turns)


ON_A_GPU: Final = GpuBenchPlan(batches=(1, 4, 16, 64), max_tokens=480, start_timeout_seconds=1800)
ON_THE_CPU: Final = GpuBenchPlan(
    batches=(1, 4, 8),
    max_tokens=200,
    start_timeout_seconds=300,
    change_seconds=3,
    turn_rounds=2,
    turn_seconds=3,
)


def quick(plan: GpuBenchPlan) -> GpuBenchPlan:
    """Shows that everything works; its numbers say little."""
    return GpuBenchPlan(
        batches=plan.batches[1:2],
        max_tokens=plan.max_tokens,
        start_timeout_seconds=plan.start_timeout_seconds,
        change_rounds=1,
        turn_rounds=1,
        requests=8,
    )
