"""Who runs where."""

import os

import pytest

from benchmarks.engine.processors import running_on, split


@pytest.mark.parametrize(
    ("processors", "engines", "ours"),
    [({0, 1}, {1}, {0}), ({2, 5, 3}, {5}, {2, 3}), ({4}, {4}, {4})],
)
def test_the_engine_has_one_for_itself_where_there_are_two(
    processors: set[int], engines: set[int], ours: set[int]
) -> None:
    assert split(processors) == (engines, ours)


def test_the_choice_ends_with_its_block_even_by_an_error() -> None:
    before = os.sched_getaffinity(0)
    chosen = frozenset({min(before)})

    def fail() -> None:
        with running_on(chosen):
            assert os.sched_getaffinity(0) == chosen
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert os.sched_getaffinity(0) == before
