"""Each failure doubles the wait, up to the longest."""

import pytest

from fathom.times import Backoff


@pytest.mark.parametrize(
    ("failures", "wait_s"), [(1, 2), (2, 4), (3, 8), (4, 10), (9, 10), (100_000, 10)]
)
def test_each_failure_doubles_the_wait_up_to_the_longest(failures: int, wait_s: float) -> None:
    assert Backoff(first_s=2, longest_s=10).after(failures) == wait_s
