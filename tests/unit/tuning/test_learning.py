"""What is taken for the present, and what is too old for it."""

from dataclasses import replace

import pytest

from fathom.tuning.interface import STALE_S
from unit.tuning.plant import SETTINGS, Fleet


@pytest.mark.parametrize(("window_s", "longest_s"), [(10.0, STALE_S), (60.0, 180.0)])
def test_a_look_is_of_the_present_for_three_windows_and_for_scrapes_that_are_seldom(
    window_s: float, longest_s: float
) -> None:
    fleet = Fleet(settings=replace(SETTINGS, window_seconds=window_s))
    snapshot, counters = fleet.snapshot(), fleet.pods[0].counters(fleet.now_s)

    def stale(age_s: float) -> bool:
        return snapshot.is_stale(replace(counters, at_s=snapshot.now_s - age_s))

    assert not stale(longest_s - 1)
    assert stale(longest_s + 1)
