"""The comparison of two depths, on a machine that is made up."""

import pytest

from local_cluster.demo.measure import Comparison, Slice, in_turn
from local_cluster.demo.phases import SCENES


async def test_slices_are_taken_in_turn_so_that_a_drift_favours_neither() -> None:
    depths: list[int | None] = []
    counts: list[int] = []

    async def measure(depth: int | None) -> Slice:
        depths.append(depth)
        # The machine gets slower from slice to slice.
        return Slice((130.0 if depth is None else 100.0) - len(depths), None)

    tuned, static = await in_turn(measure, 3, 2, counts.append)

    assert depths == [None, 3, 3, None]
    assert counts == [0, 1, 2, 3]
    assert sum(each.tokens_per_second for each in tuned) == 129 + 126
    assert sum(each.tokens_per_second for each in static) == 98 + 97


def compared(*threads: float | None) -> Comparison:
    """Tuned is by wall time half as fast as static, and by these seconds of threads as given."""
    return Comparison(
        phase=SCENES[0].phase,
        depth=7,
        tuned=tuple(Slice(50.0, each) for each in threads),
        static=tuple(Slice(100.0, 200.0) for _ in threads),
    )


def test_processor_seconds_of_the_stepping_threads_are_compared_where_they_are_known() -> None:
    known = compared(250.0, 251.0, 249.0)
    assert known.by_threads
    assert known.ratio.estimate == pytest.approx(1.25, rel=1e-3)


def test_wall_time_is_compared_where_they_are_not() -> None:
    unknown = compared(250.0, None, 250.0)
    assert not unknown.by_threads
    assert unknown.ratio.estimate == pytest.approx(0.5)
