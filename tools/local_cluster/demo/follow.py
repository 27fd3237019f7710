"""Waits until depth has followed the traffic."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from local_cluster.demo.observe import UNREADABLE
from local_cluster.demo.phases import Scene
from local_cluster.demo.verdict import Move

_POLL_SECONDS: Final = 1.0


async def until_moved(
    depth_in_force: Callable[[], Awaitable[int | None]],
    scene: Scene,
    before: int,
    *,
    stays_s: float,
    limit_s: float,
    waited: Callable[[float], None],
) -> Move:
    """Returns when depth has been where the scene asks for a while, or when time is over.

    Args:
        depth_in_force: what all engines obey; None: not known at this moment.
        scene: the traffic, which has just begun.
        before: depth until now.
        stays_s: for so many seconds in a row it has to be there.
        limit_s: the most seconds to wait.
        waited: gets the seconds that have gone by, now and then.

    Returns:
        Its seconds are those until depth was there.
    """
    clock = asyncio.get_running_loop().time
    began_s = moved_s = clock()
    depth = before
    while (now_s := clock()) < began_s + limit_s:
        waited(now_s - began_s)
        with suppress(*UNREADABLE):
            found = await depth_in_force()
            depth = depth if found is None else found
        if not scene.asks.moved(before, depth):
            moved_s = clock()
        elif now_s >= moved_s + stays_s:
            break
        await asyncio.sleep(_POLL_SECONDS)
    return Move(scene=scene, before=before, after=depth, seconds=moved_s - began_s)
