"""How tests wait: for events. Time is only an outer guard, for what would never happen.

One machine is several times as slow as another, and has other work beside the tests. So no test
says how soon something happens: it says what happens, and waits for that.
"""

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final, TypeVar

import pytest

GUARD_S: Final = 600.0
"""After so long what is waited for never comes. Far more than ten times what anything here takes:
it ends what hangs, and says in a sentence what it hung at. A time-out of the product's own that a
test must not run into is set to it as well."""
GLANCE_S: Final = 0.002
"""Between two looks at what this process remembers."""
ASK_S: Final = 0.1
"""Between two questions to somebody else, whom each costs work."""

Found = TypeVar("Found")


@asynccontextmanager
async def guarded(what: str, within_s: float = GUARD_S) -> AsyncIterator[None]:
    """Fail where the block does not end.

    Args:
        what: is waited for in it, in words.
        within_s: seconds. Another number only where giving up is what a test is about.
    """
    try:
        async with asyncio.timeout(within_s) as guard:
            yield
    except TimeoutError:
        if not guard.expired():
            raise
        pytest.fail(f"Not within {within_s:g} s: {what}.")


async def until(
    holds: Callable[[], Awaitable[Found | None] | Found | None],
    what: str,
    *,
    every_s: float | None = None,
    within_s: float = GUARD_S,
) -> Found:
    """Wait until something holds; what was found then.

    Args:
        holds: looks, or asks.
        what: is waited for, in words.
        every_s: seconds between two looks; None: as long as its kind of look should have.
        within_s: as of `guarded`.
    """
    async with guarded(what, within_s):
        while True:
            found = holds()
            asks = inspect.isawaitable(found)
            if asks:
                found = await found
            if found:
                return found
            await asyncio.sleep(every_s if every_s is not None else ASK_S if asks else GLANCE_S)


async def turns(count: int = 100) -> None:
    """Let everything run that this loop has to do, and that comes of it; no time needs to pass."""
    for _ in range(count):
        await asyncio.sleep(0)
