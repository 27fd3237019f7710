"""What `check` says of the context at which adaptive verification is profiled."""

from typing import Any

import pytest

from fathom.engine.start import PROFILED_CONTEXT
from manifest_samples import resource
from support.validated import warnings


def doubts(**changes: Any) -> list[str]:
    told = warnings(resource({**changes}))
    return [str(each) for each in told if PROFILED_CONTEXT in str(each)]


@pytest.mark.parametrize("verification", ["Enabled", "Canary"])
def test_where_drafts_are_cut_by_the_cost_at_another_context_it_is_said(verification: str) -> None:
    (doubt,) = doubts(**{"speculation.adaptiveVerification": verification})
    assert "8192 tokens of context" in doubt
    assert "`fathom explain` shows" in doubt


def test_who_says_which_context_it_is_is_told_nothing() -> None:
    said = {"name": PROFILED_CONTEXT, "value": "512"}
    assert not doubts(**{"speculation.adaptiveVerification": "Enabled", "engine.env": [said]})


def test_where_no_drafts_are_cut_there_is_nothing_to_say() -> None:
    assert not doubts()
