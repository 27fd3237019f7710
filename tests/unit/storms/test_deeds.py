"""Sets of deeds name deeds that there are: else an invariant would wait for what never comes."""

from storms.deeds import SPOIL_METRICS
from storms.simulated_deeds import DEEDS, FIGHTS, HINDERS


def test_every_deed_that_is_named_can_be_drawn() -> None:
    assert DEEDS.keys() >= SPOIL_METRICS | FIGHTS | HINDERS
