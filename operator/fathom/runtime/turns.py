"""Passes take turns: a thousand that are due together must not hold up the one that is urgent.

All share one event loop. Of passes that run at the same time each waits for all others at each
step, so that the fewer begin together, the sooner each ends; none is later for it than it would be.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from fathom.core.cluster.kinds import ObjectKey

PASSES_AT_ONCE: Final = 16
BESIDE_URGENT: Final = 2
"""Of them, that go on beside one that is urgent: it shall have the processor almost for itself. But
whoever writes to a resource again and again must not stop the rest."""
PASSED_ON_AFTER_S: Final = 1.0
"""A pass that takes longer waits for others, such as for pods that hang, and no longer for us: its
turn is the next one's."""

_Line = dict[ObjectKey, "asyncio.Future[bool]"]
"""Who waits; each is told whether the turn that it gets is an urgent one."""


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
        self._at_once = at_once
        self._passed_on_after_s = passed_on_after_s
        self._held = Counter[bool]()
        """Turns, by whether they are urgent."""
        self._lines: dict[bool, _Line] = {True: {}, False: {}}

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
        if self._is_free(urgent=urgent):
            self._held[urgent] += 1
        else:
            came_s = loop.time()
            urgent = await self._wait(key, self._lines[urgent])
            waited_s = loop.time() - came_s

        def pass_on() -> None:
            nonlocal held
            if held:
                held = False
                self._held[urgent] -= 1
                self._fill()

        timer = loop.call_later(self._passed_on_after_s, pass_on)
        try:
            yield waited_s
        finally:
            timer.cancel()
            pass_on()

    def hurry(self, key: ObjectKey) -> None:
        """What waits is urgent now; nothing happens if it does not wait."""
        if (waiting := self._lines[False].pop(key, None)) is not None:
            self._lines[True][key] = waiting
            self._fill()

    async def _wait(self, key: ObjectKey, line: _Line) -> bool:
        waiting: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        line[key] = waiting
        try:
            return await waiting
        except asyncio.CancelledError:
            for each in self._lines.values():
                each.pop(key, None)
            if not waiting.cancelled():
                # It was its turn at that very moment.
                self._held[waiting.result()] -= 1
            self._fill()
            raise

    def _is_free(self, *, urgent: bool) -> bool:
        if self._held.total() >= self._at_once:
            return False
        beside_urgent = self._held[True] > 0 or bool(self._lines[True])
        return urgent or not beside_urgent or self._held[False] < BESIDE_URGENT

    def _fill(self) -> None:
        # Who is not urgent first: of them few have a turn, or none is urgent.
        for kind in (False, True):
            line = self._lines[kind]
            while line and self._is_free(urgent=kind):
                waiting = line.pop(next(iter(line)))
                if not waiting.done():  # else it has just been cancelled
                    self._held[kind] += 1
                    waiting.set_result(kind)
