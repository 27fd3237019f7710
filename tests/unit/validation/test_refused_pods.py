"""What an API server would refuse for certain is said first, and what it would take is not."""

import pytest

from manifest_samples import resource
from refused_pods import REFUSED, Refused
from support.validated import errors


@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED.keys())
def test_it_is_refused_and_what_is_like_it_is_not(case: Refused) -> None:
    (problem,) = errors(resource(case.edits))

    assert str(problem).startswith(case.says)
    assert errors(resource(case.like_it)) == ()
