"""What shares its parts with another object still says what it said."""

import copy
import json

from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import JsonValue

from fathom.cluster.manifest import sharing

_LEAF = st.none() | st.booleans() | st.integers(-1, 2) | st.sampled_from([0.0, 1.0, "", "a", "b"])
_JSON = st.recursive(
    _LEAF,
    lambda below: (
        st.lists(below, max_size=3) | st.dictionaries(st.sampled_from("abc"), below, max_size=3)
    ),
    max_leaves=12,
)


@given(_JSON, _JSON)
@example({"a": None}, {"b": None})
def test_sharing_changes_nothing_in_either(found: JsonValue, like: JsonValue) -> None:
    said, other = json.dumps(found, sort_keys=True), json.dumps(like)
    shared = sharing(copy.deepcopy(found), like)
    assert (json.dumps(shared, sort_keys=True), json.dumps(like)) == (said, other)


@given(_JSON)
def test_what_is_equal_is_the_very_same(found: JsonValue) -> None:
    assert sharing(copy.deepcopy(found), found) is found
