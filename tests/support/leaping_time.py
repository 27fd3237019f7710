"""An event loop whose clock stands still while anything can happen, and then leaps to a timer.

So time-outs and pauses keep their order on every machine: a timer is due only when nobody in this
process, at either end of a socket, has anything left to do. No other process may be asked in it, as
time would leap while that one works.
"""

import asyncio
import functools
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, Final, ParamSpec

_UNDER_WAY_S: Final = 0.05
"""Real seconds for which sockets must be silent: a kernel that is busy hands on a moment later."""

Given = ParamSpec("Given")


class _Leap(selectors.DefaultSelector):
    """Counts the time that it would have waited, and hardly waits."""

    def __init__(self) -> None:
        super().__init__()
        self.passed_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:  # another thread has to do something first
            return super().select()
        alone = len(self.get_map()) == 1  # with the loop's own pipe
        found = super().select(0 if alone or timeout <= 0 else _UNDER_WAY_S)
        if not found:
            self.passed_s += max(0.0, timeout)
        return found


class LeapingLoop(asyncio.SelectorEventLoop):
    """asyncio's own loop on such a clock."""

    def __init__(self) -> None:
        self._leap = _Leap()
        super().__init__(self._leap)

    def time(self) -> float:
        """Seconds since it was made."""
        return self._leap.passed_s


def in_leaping_time(
    test: Callable[Given, Coroutine[Any, Any, None]],
) -> Callable[Given, None]:
    """A test in a loop of its own whose clock leaps; it takes no fixtures of another loop."""

    @functools.wraps(test)
    def run(*args: Given.args, **kwargs: Given.kwargs) -> None:
        with asyncio.Runner(loop_factory=LeapingLoop) as runner:
            runner.run(test(*args, **kwargs))

    return run
