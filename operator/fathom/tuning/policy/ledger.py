"""What the tuner gained against the user's own depth over the last hour: its bound on loss.

Every second of every pod is entered at the depth it really ran, probes included, at what is known
now of that depth against `tokens`. So neither a schedule that turned out wrong nor too much probing
stays unseen.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import exp
from typing import Final

from fathom.measurement.deltas import PodDelta

GainOverTokens = Callable[[int, int], float | None]

HOUR_S: Final = 3600.0
"""Time constant of the ledger, and the least that it must have seen before it ends in a return."""
MOST_BEHIND_LOSS: Final = 0.005
"""Over that time, at which the tuner returns to the user's depth: what trust costs at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """Sums over the past, forgotten with a time constant of an hour."""

    gained_seconds: float = 0.0
    """Busy seconds, each times the relative gain at its depth over `tokens`."""
    busy_seconds: float = 0.0
    kept_s: float = 0.0
    """Length of the past that is entered (seconds)."""
    at_s: float = 0.0

    @property
    def gain(self) -> float | None:
        """Relative gain over `tokens`; None: nothing was entered."""
        return self.gained_seconds / self.busy_seconds if self.busy_seconds > 0 else None

    @property
    def is_behind(self) -> bool:
        """Whether a whole hour says that the tuner loses."""
        return self.kept_s >= HOUR_S and self.gain is not None and self.gain < -MOST_BEHIND_LOSS

    def updated(
        self, deltas: Iterable[PodDelta], gain_over_tokens: GainOverTokens, at_s: float
    ) -> "Ledger":
        """With what the pods did in one more window.

        Args:
            deltas: what they counted.
            gain_over_tokens: relative gain of a depth in a bucket; None: unknown.
            at_s: end of the window (Unix seconds).
        """
        gained = busy = 0.0
        for each in deltas:
            for cell, counts in each.cells.items():
                gain = gain_over_tokens(cell.batch_le, cell.depth)
                if gain is not None:
                    busy += counts.step_seconds
                    gained += counts.step_seconds * gain
        if busy <= 0:
            return self
        passed_s = max(0.0, at_s - self.at_s) if self.at_s else 0.0
        kept = exp(-passed_s / HOUR_S)
        return Ledger(
            gained_seconds=kept * self.gained_seconds + gained,
            busy_seconds=kept * self.busy_seconds + busy,
            kept_s=min(self.kept_s + passed_s, 2 * HOUR_S),
            at_s=at_s,
        )
