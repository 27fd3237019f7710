"""Options whose value is read, each by any beginning that stands for it alone."""

import pytest

from fathom.core.engine.options import SHORTEST, last_value


@pytest.mark.parametrize("name", SHORTEST)
def test_an_option_is_read_in_every_spelling(name: str) -> None:
    shortest = SHORTEST[name]

    for end in range(len(shortest), len(name) + 1):
        assert last_value([name[:end], "x"], name) == "x"
        assert last_value([f"{name[:end].replace('-', '_').replace('__', '--', 1)}=x"], name) == "x"
    assert last_value([shortest[:-1], "x"], name) is None
    assert last_value([f"{name}-more", "x"], name) is None


@pytest.mark.parametrize("name", SHORTEST)
def test_no_beginning_stands_for_two_of_them(name: str) -> None:
    assert [each for each in SHORTEST if each.startswith(SHORTEST[name])] == [name]
