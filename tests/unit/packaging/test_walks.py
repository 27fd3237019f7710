"""How far a value is handed on through the code, as `tools/walks.py` counts it."""

import pytest

from walks import TRIPS

MOST = {"edit": 190, "check": 128, "decision": 30}
"""Functions. Fewer is better: lower it with each that goes. A new rule is one more. At 47133676,
with half as many rules, an edit took 169 and a check 123
(docs/design/0057-an-engine-has-a-profile.md)."""


@pytest.mark.parametrize("trip", TRIPS)
def test_no_more_functions_receive_it(trip: str) -> None:
    found = TRIPS[trip]()
    assert found, "nothing was watched"
    assert len(found) <= MOST[trip], sorted(found)
