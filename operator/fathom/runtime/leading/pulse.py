"""Whether an event loop gets on, for another thread to see."""

import asyncio
import time
from collections.abc import Callable
from typing import Final

BEAT_S: Final = 1.0
LIFELESS_AFTER_S: Final = 30.0
"""A loop that is full to the brim comes round within a second or two; on a machine ten times too
slow for it, within twenty. One that has not by now hangs. Kubernetes restarts its pod when /healthz
has not answered for about as long, so that whichever comes first ends it. Sooner, and the busiest
operator would lose its lease, start anew and be busier still."""


class Pulse:
    """Beaten by the loop itself. A beat is one write, so that threads need no lock."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        """Start alive.

        Args:
            now_s: seconds of a clock that never goes back.
        """
        self._now_s = now_s
        self._beaten_s = now_s()

    @property
    def alive(self) -> bool:
        """Whether the loop came round within the last half minute."""
        return self._now_s() - self._beaten_s < LIFELESS_AFTER_S

    def beat(self) -> None:
        """The loop is here."""
        self._beaten_s = self._now_s()

    async def keep(self) -> None:
        """Beat every second, in the loop that is meant, until cancelled."""
        while True:
            self.beat()
            await asyncio.sleep(BEAT_S)
