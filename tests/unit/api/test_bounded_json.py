"""Text that others wrote is read within bounds, or refused in one way."""

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fathom.api.bounded_json import DEEPEST, UnreadableJsonError, nests_too_deep, parsed_json

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**18), 10**18) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=20,
)


@given(VALUES)
def test_what_is_json_is_read(value: object) -> None:
    assert parsed_json(json.dumps(value)) == value


@given(st.text() | st.binary())
def test_whatever_it_is_there_is_one_error(text: str | bytes) -> None:
    with suppress(UnreadableJsonError):
        parsed_json(text)


def nested(levels: int) -> str:
    return "[" * levels + "]" * levels


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[" * 20_000, "deeper than 100 levels"),
        ('{"a":' * 20_000, "deeper than 100 levels"),
        ("[" * (DEEPEST + 1), "deeper than 100 levels"),
        ('["]", "\\"]", ' * (DEEPEST + 1) + "?", "deeper than 100 levels"),
        (b'{"a": [' * DEEPEST, "deeper than 100 levels"),
        (nested(DEEPEST + 1), "deeper than 100 levels"),
        ("1" * 5_000, "a number of 5000 digits"),
        ("", "not JSON"),
        ('{"a": 1', "not JSON"),
        ("[" * DEEPEST, "not JSON"),
        ("[[], {}, " * (DEEPEST - 1), "not JSON"),
        ('{"' + "[" * 20_000, "not JSON"),
        ("?" + nested(20_000), "not JSON"),
        (b"\xff\xfe\xfd", "not JSON"),
    ],
)
def test_what_cannot_be_read_says_why(text: str | bytes, why: str) -> None:
    with pytest.raises(UnreadableJsonError, match=why):
        parsed_json(text)


def test_the_deepest_that_is_read() -> None:
    assert not nests_too_deep(parsed_json(nested(DEEPEST)))
