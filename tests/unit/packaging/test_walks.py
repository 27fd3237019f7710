"""How far a value is handed on through the code, as `tools/walks.py` counts it."""

from collections.abc import Iterator

import pytest
import structlog

from walks import TRIPS

MOST = {"edit": 200, "check": 137, "decision": 32}
"""Functions. Fewer is better: lower it with each that goes. A new rule is one more. At 47133676,
with half as many rules, an edit took 169 and a check 123
(docs/design/0057-an-engine-has-a-profile.md)."""


@pytest.fixture(autouse=True)
def quiet_logs() -> Iterator[None]:
    """What the loop logs may go where another test has closed the file."""
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
    yield
    structlog.reset_defaults()


@pytest.mark.parametrize("trip", TRIPS)
def test_no_more_functions_receive_it(trip: str) -> None:
    found = TRIPS[trip]()
    assert found, "nothing was watched"
    assert len(found) <= MOST[trip], sorted(found)
