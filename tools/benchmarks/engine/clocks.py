"""The tuner's clock, which runs only while the tuner has its turn."""

import time
from collections.abc import Callable


class MonotonicClock:
    """Seconds that never go back; for lengths of time, not for dates."""

    def now_s(self) -> float:
        """Seconds since some moment in the past."""
        return time.monotonic()


class PausableClock:
    """Stands still until it is resumed, and again after each pause."""

    def __init__(self, start_s: float, running: Callable[[], float] = time.monotonic) -> None:
        """Begin paused.

        Args:
            start_s: what it shows until then (Unix seconds).
            running: the clock that it follows while it runs.
        """
        self._stood_at_s = start_s
        self._running = running
        self._resumed_at_s: float | None = None

    def now_s(self) -> float:
        """The start, and the time it has run since."""
        if self._resumed_at_s is None:
            return self._stood_at_s
        return self._stood_at_s + self._running() - self._resumed_at_s

    def resume(self) -> None:
        """Run. Idempotent."""
        if self._resumed_at_s is None:
            self._resumed_at_s = self._running()

    def pause(self) -> None:
        """Stand still. Idempotent."""
        self._stood_at_s = self.now_s()
        self._resumed_at_s = None
