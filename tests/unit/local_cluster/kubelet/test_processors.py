import pytest

from local_cluster.kubelet.containers.processors import ProcessorPool, whole_processors
from local_cluster.kubelet.models import Container


@pytest.mark.parametrize(
    ("resources", "count"),
    [
        ({"limits": {"cpu": "2"}}, 2),
        ({"limits": {"cpu": 1}, "requests": {"cpu": 1}}, 1),
        ({"limits": {"cpu": "2"}, "requests": {"cpu": "1"}}, 0),
        ({"limits": {"cpu": "1500m"}}, 0),
        ({"requests": {"cpu": "1"}}, 0),
        ({}, 0),
    ],
)
def test_whole_processors_are_those_asked_for_in_full(
    resources: dict[str, dict[str, str | int]], count: int
) -> None:
    container = Container.model_validate({"name": "c", "image": "i", "resources": resources})
    assert whole_processors(container) == count


def test_two_containers_get_different_processors_and_a_third_shares() -> None:
    pool = ProcessorPool((0, 1))
    assert (pool.take(1), pool.take(1), pool.take(1)) == ((0,), (1,), (0,))


def test_what_is_given_back_is_handed_out_next() -> None:
    pool = ProcessorPool((0, 1))
    first, second = pool.take(1), pool.take(1)
    pool.give_back(second)
    assert pool.take(1) == second != first


def test_no_more_is_taken_than_there_is() -> None:
    assert ProcessorPool((0, 1)).take(8) == (0, 1)
    assert ProcessorPool((0, 1)).take(0) == ()
