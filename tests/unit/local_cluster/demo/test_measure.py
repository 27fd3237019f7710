"""The comparison of two depths, on a machine that is made up."""

import pytest

from local_cluster.demo.measure import Slice, Turns, in_turn


async def test_slices_are_taken_in_turn_so_that_a_drift_favours_neither() -> None:
    depths: list[int | None] = []
    seen: list[Turns] = []

    async def measure(depth: int | None) -> Slice:
        depths.append(depth)
        # The machine gets slower from slice to slice.
        return Slice((130.0 if depth is None else 100.0) - len(depths), None)

    turns = await in_turn(measure, 3, 2, seen.append)

    assert depths == [None, 3, 3, None]
    assert [(len(each.tuned), len(each.static)) for each in seen] == [
        (0, 0),
        (1, 0),
        (1, 1),
        (1, 2),
    ]
    assert turns.rates(turns.tuned) == [129, 126]
    assert turns.rates(turns.static) == [98, 97]


def compared(*threads: float | None) -> Turns:
    """Tuned is by wall time half as fast as static, and by these seconds of threads as given."""
    return Turns(
        tuple(Slice(50.0, each) for each in threads), tuple(Slice(100.0, 200.0) for _ in threads)
    )


def test_processor_seconds_of_the_stepping_threads_are_compared_where_they_are_known() -> None:
    known = compared(250.0, 251.0, 249.0)
    assert known.by_threads
    assert known.ratio.estimate == pytest.approx(1.25, rel=1e-3)


def test_wall_time_is_compared_where_they_are_not() -> None:
    unknown = compared(250.0, None, 250.0)
    assert not unknown.by_threads
    assert unknown.ratio.estimate == pytest.approx(0.5)
