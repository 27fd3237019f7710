"""Depth that follows the traffic, seen by somebody who waits for it. In leaping time."""

from collections.abc import Iterator

import aiohttp
import pytest

from local_cluster.demo.follow import until_moved
from local_cluster.demo.phases import SCENES
from local_cluster.demo.verdict import Move
from support.leaping_time import in_leaping_time

EASY, HARD = SCENES


async def seen(depths: Iterator[int | Exception | None]) -> Move:
    """Easy traffic from depth 3: what each look finds, a second after the one before."""

    async def depth_in_force() -> int | None:
        found = next(depths)
        if isinstance(found, Exception):
            raise found
        return found

    return await until_moved(depth_in_force, EASY, 3, stays_s=5, limit_s=30, waited=lambda _: None)


def forever(*depths: int | Exception | None) -> Iterator[int | Exception | None]:
    yield from depths
    while True:
        yield depths[-1]


@in_leaping_time
async def test_a_move_that_stays_is_timed_from_the_first_request_to_the_move() -> None:
    move = await seen(forever(3, 3, 3, 7))
    assert (move.before, move.after, move.as_asked) == (3, 7, True)
    assert move.seconds == pytest.approx(2, abs=1)


@in_leaping_time
async def test_what_does_not_stay_is_no_move() -> None:
    move = await seen(forever(3, 7, 7, 3, 3, 5))
    assert (move.after, move.as_asked) == (5, True)
    assert move.seconds == pytest.approx(4, abs=1)


@in_leaping_time
async def test_time_is_over_where_depth_does_not_move_or_goes_the_other_way() -> None:
    for depth in (3, 1):
        move = await seen(forever(depth))
        assert (move.after, move.as_asked) == (depth, False)
        assert move.seconds == pytest.approx(30, abs=1)


@in_leaping_time
async def test_a_look_that_fails_or_finds_engines_behind_is_followed_by_the_next() -> None:
    move = await seen(forever(None, TimeoutError(), aiohttp.ClientError(), 7, None, 7))
    assert (move.after, move.as_asked) == (7, True)
