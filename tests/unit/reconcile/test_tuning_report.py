"""What was measured, as people read it."""

from dataclasses import replace
from typing import Any

from fathom.api.choices import TuningMode
from fathom.api.conditions import Reason
from fathom.api.status import MeasuredStatus, TuningStatus
from fathom.engine.depth import DepthDocument, flat
from fathom.reconcile.tuning_report import report
from fathom.tuning.estimate.measured import Measured
from fathom.tuning.interface import Action, TuningDecision
from fathom.tuning.learned_state import TuningState

NOW_S = 1_800_000_000.0
MEASURED = Measured(
    at_s=NOW_S,
    window_seconds=30.4,
    tokens_per_second=1234.4,
    mean_batch=4.25,
    acceptance_length=2.876,
    acceptance_rate=0.6254,
    survival=(0.81234, 0.5),
    tpot_seconds=0.012345,
    gain=0.05678,
)


def told(measured: Measured, headroom: float | None = None) -> MeasuredStatus:
    decision = TuningDecision(
        action=Action.HOLD,
        reason=Reason.AT_BEST,
        message="",
        document=DepthDocument(generation=1, schedule=flat(3, 256)),
        state=TuningState(),
        wake_after_s=30.0,
        measured=measured,
        headroom_tokens_per_second=headroom,
    )
    return report(decision, TuningMode.AUTO, NOW_S, TuningStatus(), MeasuredStatus()).measured


def test_numbers_are_told_as_finely_as_they_mean_something() -> None:
    assert told(MEASURED) == MeasuredStatus(
        at="2027-01-15T08:00:00Z",
        window_seconds=30,
        acceptance_length="2.88",
        acceptance_rate="0.63",
        survival=("0.812", "0.500"),
        tokens_per_second=1234,
        mean_batch="4.2",
        tpot_milliseconds="12.3",
        gain_percent="5.7",
    )


def test_what_is_not_known_is_not_told_as_zero() -> None:
    unknown: dict[str, Any] = dict.fromkeys(
        ("acceptance_length", "acceptance_rate", "tpot_seconds", "gain")
    )
    found = told(replace(MEASURED, **unknown))
    assert found.acceptance_length == found.acceptance_rate == ""
    assert found.tpot_milliseconds == found.gain_percent == ""


def test_headroom_is_a_number_only_where_it_is_known() -> None:
    assert told(MEASURED).headroom_tokens_per_second is None
    assert told(MEASURED, 0.4).headroom_tokens_per_second == 0
    assert told(MEASURED, 1450.6).headroom_tokens_per_second == 1451
