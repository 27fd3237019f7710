"""The table says one thing of each method and of each row."""

import pytest
from packaging.version import Version

from fathom.api.methods import METHODS, Method
from fathom.engine.capability_table import LIVE_DEPTH, TABLE


def test_every_method_is_in_the_table() -> None:
    assert set(METHODS) == set(Method)


def test_rows_have_names_of_their_own() -> None:
    names = [row.what for row in TABLE]

    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("version", "has"),
    [("0.32.0rc1", False), ("0.32.0", True), ("0.33.1", True), ("0.34.0", False)],
)
def test_a_release_candidate_comes_before_its_release(version: str, has: bool) -> None:  # noqa: FBT001 - see the table above
    assert LIVE_DEPTH.in_version(Version(version)) is has
