from itertools import pairwise

import pytest

from fathom.engine.depth import depth_at
from fathom.engine.depth_set import startup_schedule


def test_names_every_depth_near_the_top() -> None:
    ranges = [(part.first, part.last, part.depth) for part in startup_schedule(range(8), 256)]

    assert ranges == [
        (1, 249, 3),
        (250, 250, 7),
        (251, 251, 6),
        (252, 252, 5),
        (253, 253, 4),
        (254, 254, 2),
        (255, 255, 1),
        (256, 256, 0),
    ]


@pytest.mark.parametrize("max_tokens", range(1, 65))
@pytest.mark.parametrize("max_batch", [1, 2, 5, 16, 256])
def test_is_valid_and_complete_as_far_as_there_is_room(max_tokens: int, max_batch: int) -> None:
    schedule = startup_schedule(range(max_tokens + 1), max_batch)

    assert schedule[0].first == 1
    assert schedule[-1].last == max_batch
    for before, after in pairwise(schedule):
        assert after.first == before.last + 1
    named = {depth_at(schedule, batch) for batch in range(1, max_batch + 1)}
    assert named <= set(range(max_tokens + 1))
    assert len(named) == min(max_batch, max_tokens + 1)
    assert min(3, max_tokens) in named


def test_with_little_room_the_nearest_depths_are_named() -> None:
    assert {part.depth for part in startup_schedule(range(8), 4)} == {3, 2, 4, 1}
