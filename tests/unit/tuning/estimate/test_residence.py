import pytest

from fathom.measurement.counters import Cell, CellCounts, EngineCounts, StepKind
from fathom.measurement.deltas import PodDelta
from fathom.tuning.estimate.settled import HALF_LIFE_S, Residence


def delta(*, steps: float = 1000.0, batch: float = 20.0, finished: float = 50.0) -> PodDelta:
    """Ten seconds in steps of a hundredth of one."""
    cells = {Cell(20, 3, StepKind.DECODE): CellCounts(steps, steps / 100, 0.0, steps * batch)}
    return PodDelta(
        pod="pod",
        from_s=0.0,
        to_s=10.0,
        engine=EngineCounts(finished_requests=finished),
        cells=cells,
        drafts={},
    )


def test_twenty_requests_of_which_five_end_each_second_stay_for_four() -> None:
    assert Residence().updated([delta()], 10.0).seconds == pytest.approx(4.0)


def test_pods_are_added_up() -> None:
    both = Residence().updated([delta(batch=30.0), delta(batch=10.0)], 10.0)
    assert both.seconds == pytest.approx(4.0)


def test_of_few_requests_it_is_not_known() -> None:
    assert Residence().seconds is None
    assert Residence().updated([delta(finished=3.0)], 10.0).seconds is None


def test_it_follows_the_traffic() -> None:
    known = Residence().updated([delta()], 10.0)
    later = known.updated([delta(batch=40.0)], 10.0 + 10 * HALF_LIFE_S)
    assert later.seconds == pytest.approx(8.0, rel=0.01)


def test_without_steps_it_stays_as_it_is() -> None:
    known = Residence().updated([delta()], 10.0)
    assert known.updated([delta(steps=0.0, finished=0.0)], 20.0) is known
