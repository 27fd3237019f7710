"""The one measure by which a misspelt name is taken for another."""

import pytest

from fathom.api.suggestions import VERY_NEAR, nearest


@pytest.mark.parametrize(
    ("name", "names", "meant"),
    [
        ("maxtokens", ("maxTokens", "minTokens"), "maxTokens"),
        ("max-tokens", ("maxTokens", "minTokens"), "maxTokens"),
        ("explian", ("explain", "replay"), "explain"),
        ("nonsense", ("explain", "replay"), ""),
        ("", ("explain",), ""),
    ],
)
def test_another_spelling_or_a_misspelt_one(name: str, names: tuple[str, ...], meant: str) -> None:
    assert nearest(name, names) == meant


def test_among_many_names_more_likeness_is_asked_for() -> None:
    assert nearest("tokenizer", ("tokens",)) == "tokens"
    assert nearest("tokenizer", ("tokens",), VERY_NEAR) == ""
