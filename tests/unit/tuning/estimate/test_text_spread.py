"""How much of the spread between requests comes from their text."""

import pytest

from fathom.tuning.estimate.text_spread import HALF_LIFE_S, PRIOR_SHARE, TextSpread

SHALLOW, DEEP = 0.2, 0.4
"""Slopes at two depths."""


def seen(*windows: tuple[float, float], times: int = 200) -> TextSpread:
    """Windows of slope and spread, in turn."""
    learnt = TextSpread()
    for i in range(times):
        for slope, spread in windows:
            learnt = learnt.updated(slope, spread, 30.0 * (i + 1))
    return learnt


def test_until_two_depths_ran_the_prior_holds() -> None:
    assert TextSpread().steepness(SHALLOW, 0.5) == pytest.approx(PRIOR_SHARE * 0.5 / SHALLOW)
    assert seen((SHALLOW, 0.5)).steepness(SHALLOW, 0.5) == pytest.approx(
        PRIOR_SHARE * 0.5 / SHALLOW
    )


@pytest.mark.parametrize("by_text", [0.0, 0.5, 1.0])
def test_two_depths_tell(by_text: float) -> None:
    """A spread of 0.5 at the shallow one, of which so much grows with the slope."""
    deep = 0.5 * (1 - by_text + by_text * DEEP / SHALLOW)
    steepness = seen((SHALLOW, 0.5), (DEEP, deep)).steepness(SHALLOW, 0.5)
    assert steepness * SHALLOW / 0.5 == pytest.approx(by_text, abs=0.05)


def test_it_is_never_negative_and_never_more_than_all() -> None:
    assert seen((SHALLOW, 0.5), (DEEP, 0.2)).steepness(SHALLOW, 0.5) == 0
    assert seen((SHALLOW, 0.5), (DEEP, 3.0)).steepness(SHALLOW, 0.5) == pytest.approx(0.5 / SHALLOW)


def test_what_was_long_ago_counts_for_less() -> None:
    learnt = seen((SHALLOW, 0.5), (DEEP, 0.5))
    later = learnt.updated(SHALLOW, 0.5, learnt.at_s + HALF_LIFE_S)
    assert later.weight == pytest.approx(learnt.weight / 2 + 1)
    assert later.squares < learnt.squares


def test_where_drafts_do_not_matter_nothing_grows() -> None:
    assert TextSpread().steepness(0.0, 0.5) == 0


def test_as_far_as_it_is_not_learnt_it_may_be_none_or_all() -> None:
    assert TextSpread().bounds(SHALLOW, 0.5) == (0.0, pytest.approx(0.5 / SHALLOW))
    assert TextSpread().bounds(0.0, 0.5) == (0.0, 0.0)

    for times in (2, 20, 2000):
        learnt = seen((SHALLOW, 0.5), (DEEP, 0.75), times=times)
        least, most = learnt.bounds(SHALLOW, 0.5)
        assert least <= learnt.steepness(SHALLOW, 0.5) <= most
    assert most - least < 0.01 * 0.5 / SHALLOW
