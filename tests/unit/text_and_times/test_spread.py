"""Many that wait as long do not wake at once."""

from fathom.times import spread


def test_each_waits_up_to_a_fifth_less_and_always_as_long() -> None:
    waits = [spread(100, f"llm/resource-{number}") for number in range(200)]
    assert waits == [spread(100, f"llm/resource-{number}") for number in range(200)]
    assert 80 <= min(waits) < 83
    assert 97 < max(waits) <= 100
