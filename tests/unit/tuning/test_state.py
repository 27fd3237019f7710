from dataclasses import replace

import pytest

from fathom.core.measurement import StepKind
from fathom.tuning.measured import Measured
from fathom.tuning.state import LARGEST_BYTES, MOST_VISITS, Change, Probe, Trial, TuningState, Visit
from fathom.tuning.step_filter import MOST_CELLS, MOST_PODS
from fathom.tuning.step_time import CellTime, PodSpeed, StepTimes
from fathom.tuning.survival import FRESH_WINDOWS, Survival, Trials
from fathom.tuning.traffic import BucketLoad, Traffic
from unit.tuning.plant import EASY, Fleet

UGLY = 1_700_000_000.1234567


def largest() -> TuningState:
    """Every bound reached, with long names and long numbers."""
    deep = Trials((UGLY,) * 64, (UGLY,) * 64)
    return TuningState(
        step_times=StepTimes(
            cells=tuple(
                CellTime(
                    1024,
                    i % 65,
                    StepKind.DECODE,
                    -4.123456789012345,
                    1.234567890123e-05,
                    UGLY,
                    UGLY,
                )
                for i in range(MOST_CELLS)
            ),
            pods=tuple(
                PodSpeed("p" * 63, -0.12345678901234567, UGLY, UGLY) for _ in range(MOST_PODS)
            ),
            dispersions=tuple((1 << i, UGLY) for i in range(12)),
        ),
        survival=Survival(deep, (deep,) * FRESH_WINDOWS, deep, UGLY, UGLY, 1000),
        traffic=Traffic(tuple(BucketLoad(1 << i, UGLY, UGLY, UGLY, UGLY) for i in range(12)), UGLY),
        probe=Probe("p" * 63, tuple((1 << i, 64) for i in range(12)), UGLY, UGLY, UGLY, 10),
        trial=Trial(tuple(Change(1 << i, 64, 63) for i in range(12)), UGLY, UGLY, UGLY),
        visits=tuple(Visit(1024, 64, UGLY, 1000, 10) for _ in range(MOST_VISITS)),
        left=tuple(Visit(1 << i, 64, UGLY, 1000) for i in range(12)),
        measured=Measured(UGLY, UGLY, UGLY, UGLY, UGLY, UGLY, (UGLY,) * 64, UGLY, UGLY),
        disobeying=tuple("p" * 63 for _ in range(64)),
    )


def test_the_largest_state_fits_with_room_to_spare() -> None:
    text = largest().to_json()
    assert len(text.encode()) < LARGEST_BYTES * 0.9
    assert TuningState.from_json(text) == largest()


def test_looks_are_not_persisted() -> None:
    fleet = Fleet(acceptance=EASY).run(60)
    assert fleet.state.looks
    again = TuningState.from_json(fleet.state.to_json())

    assert not again.looks
    assert again == replace(fleet.state, looks={}, stepped=())
    assert again.to_json() == fleet.state.to_json()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}}",
        "null",
        "[]",
        '{"version": 2}',
        '{"version": 1, "surprise": 1}',
        '{"version": 1, "probe_ended_at_s": NaN}',
        '{"version": 1, "survival": {"at_s": "soon"}}',
        " " * (LARGEST_BYTES + 1),
    ],
)
def test_garbage_is_a_fresh_state(text: str) -> None:
    assert TuningState.from_json(text) == TuningState()
