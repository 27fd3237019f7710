"""How long a request is in an engine: so long, and longer, a batch keeps the mix that it had."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from fathom.core.measurement import PodDelta
from fathom.tuning.estimate.decay import decay

HALF_LIFE_S: Final = 300.0
"""Halves what was counted: answers grow longer or shorter with the traffic, within minutes."""
LEAST_REQUESTS: Final = 20.0
"""Finished requests before it is told."""


@dataclass(frozen=True, slots=True)
class Residence:
    """Little's law: requests in steps, over time, by requests that ended."""

    request_seconds: float = 0.0
    finished: float = 0.0
    at_s: float = 0.0

    @property
    def seconds(self) -> float | None:
        """Mean time of a request in the engine; None: too few have ended."""
        return self.request_seconds / self.finished if self.finished >= LEAST_REQUESTS else None

    def updated(self, deltas: Iterable[PodDelta], at_s: float) -> "Residence":
        """With what pods counted in one more window; without any steps, the very same."""
        counted = [each for each in deltas if each.steps > 0]
        if not counted:
            return self
        kept = decay(at_s - self.at_s, HALF_LIFE_S)
        request_seconds, finished = kept * self.request_seconds, kept * self.finished
        for each in counted:
            finished += each.engine.finished_requests
            request_seconds += sum(
                counts.scheduled_requests / counts.steps * counts.step_seconds
                for counts in each.cells.values()
                if counts.steps > 0
            )
        return Residence(request_seconds, finished, at_s)
