import time


class SystemClock:
    """The machine's own wall clock."""

    def now_s(self) -> float:
        """Unix seconds."""
        return time.time()
