"""Passes take turns: a thousand that are due together must not hold up the one that is urgent.

All share one event loop. Of passes that run at the same time each waits for all others at each
step, so that the fewer begin together, the sooner each ends; none is later for it than it would be.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from fathom.core.cluster.kinds import ObjectKey

PASSES_AT_ONCE: Final = 16
PASSED_ON_AFTER_S: Final = 1.0
"""A pass that takes longer waits for others, such as for pods that hang, and no longer for us: its
turn is the next one's."""
URGENT_IN_A_ROW: Final = 3
"""While others wait: whoever writes to a resource again and again must not stop the rest."""

_Line = dict[ObjectKey, "asyncio.Future[None]"]


class Turns:
    """A line for what is urgent, and one for everything else; each first come, first served."""

    def __init__(
        self, at_once: int = PASSES_AT_ONCE, passed_on_after_s: float = PASSED_ON_AFTER_S
    ) -> None:
        """All turns are free.

        Args:
            at_once: passes that have a turn at the same time.
            passed_on_after_s: seconds after which a turn is the next one's, its pass going on.
        """
        self._free = at_once
        self._passed_on_after_s = passed_on_after_s
        self._urgent: _Line = {}
        self._others: _Line = {}
        self._urgent_in_a_row = 0

    @asynccontextmanager
    async def one(self, key: ObjectKey, *, urgent: bool) -> AsyncIterator[float]:
        """Have a turn for the length of the block.

        Args:
            key: whose it is. No one waits for two.
            urgent: whether it comes before all that are not.

        Yields:
            Seconds for which it had to wait; 0: it had not.
        """
        loop, waited_s, held = asyncio.get_running_loop(), 0.0, True
        if self._free:
            self._free -= 1
        else:
            came_s = loop.time()
            await self._wait(key, self._urgent if urgent else self._others)
            waited_s = loop.time() - came_s

        def pass_on() -> None:
            nonlocal held
            if held:
                held = False
                self._next()

        timer = loop.call_later(self._passed_on_after_s, pass_on)
        try:
            yield waited_s
        finally:
            timer.cancel()
            pass_on()

    def hurry(self, key: ObjectKey) -> None:
        """What waits is urgent now; nothing happens if it does not wait."""
        if (waiting := self._others.pop(key, None)) is not None:
            self._urgent[key] = waiting

    async def _wait(self, key: ObjectKey, line: _Line) -> None:
        waiting = line[key] = asyncio.get_running_loop().create_future()
        try:
            await waiting
        except asyncio.CancelledError:
            self._others.pop(key, None)
            self._urgent.pop(key, None)
            if not waiting.cancelled():
                # It was its turn at that very moment.
                self._next()
            raise

    def _next(self) -> None:
        while self._urgent or self._others:
            fair = self._urgent_in_a_row < URGENT_IN_A_ROW or not self._others
            urgent = bool(self._urgent) and fair
            line = self._urgent if urgent else self._others
            waiting = line.pop(next(iter(line)))
            if not waiting.done():  # else it has just been cancelled
                self._urgent_in_a_row = self._urgent_in_a_row + 1 if urgent else 0
                waiting.set_result(None)
                return
        self._free += 1
