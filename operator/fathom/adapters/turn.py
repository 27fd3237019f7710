"""A turn among those that may do something at the same time, for who does not wait for ever."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class NoTurnError(Exception):
    """There was none in time."""


@asynccontextmanager
async def turn(turns: asyncio.Semaphore, within_s: float) -> AsyncIterator[None]:
    """Have a turn for the length of the block, in which no time runs any more.

    Args:
        turns: as many as may run at the same time.
        within_s: seconds to wait for one.

    Raises:
        NoTurnError: there was none.
    """
    try:
        async with asyncio.timeout(within_s):
            await turns.acquire()
    except TimeoutError as error:
        raise NoTurnError from error
    try:
        yield
    finally:
        turns.release()
