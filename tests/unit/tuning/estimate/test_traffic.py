"""Where the load is, and where it is just now."""

from dataclasses import replace

import pytest

from fathom.measurement.counters import Cell, CellCounts, StepKind
from fathom.tuning.assessment import assess
from fathom.tuning.context import Situation
from fathom.tuning.estimate.traffic import HourLoad, Traffic
from fathom.tuning.policy.experiments import control, experiments
from fathom.tuning.policy.option import ProbePlan
from unit.tuning.plant import HARD, MIDDLE, SETTINGS, WINDOW_30, Fleet, Hardware, hours_long

WINDOW_S = 10.0


def window(*buckets: int) -> dict[Cell, CellCounts]:
    """Equally busy in each of these buckets."""
    return {
        Cell(bucket, 3, StepKind.DECODE): CellCounts(100.0, 1.0, 100.0 * bucket, 100.0 * bucket)
        for bucket in buckets
    }


def seen(*windows: tuple[float, tuple[int, ...]]) -> Traffic:
    """Windows that ended at these times, with these buckets."""
    traffic = Traffic()
    for at_s, buckets in windows:
        traffic = traffic.updated(window(*buckets), at_s, WINDOW_S)
    return traffic


def test_a_bucket_that_traffic_has_left_keeps_a_share_for_some_windows() -> None:
    traffic = seen((10.0, (2, 8)), (20.0, (8,)))
    assert 0.1 < traffic.shares()[2] < traffic.shares()[8]
    assert 2 not in seen((10.0, (2, 8)), (100.0, (8,))).shares()


def test_an_hour_that_was_watched_for_a_second_is_known_by_that() -> None:
    busy = ((8, 0.25), (16, 0.5))
    assert HourLoad(3, busy, watched_s=1.0).busy == {8: 0.25, 16: 0.5}
    assert HourLoad(3, busy).busy == {}


def test_but_it_is_not_present() -> None:
    assert seen((10.0, (2, 8))).present() == {2, 8}
    assert seen((10.0, (2, 8)), (20.0, (8,))).present() == {8}


def test_in_a_short_look_a_bucket_may_be_missing_by_chance() -> None:
    assert seen((10.0, (2, 8)), (12.0, (8,))).present() == {2, 8}


def test_at_rest_the_last_buckets_stay_present() -> None:
    traffic = seen((10.0, (8,))).updated({}, 500.0, WINDOW_S)
    assert traffic.present() == {8}


@pytest.mark.parametrize(
    ("decode_steps", "kind"), [(500.0, StepKind.DECODE), (20.0, StepKind.MIXED)]
)
def test_where_nearly_every_step_carries_a_prompt_those_steps_tell_what_a_depth_takes(
    decode_steps: float, kind: StepKind
) -> None:
    cells = {
        Cell(8, 3, StepKind.DECODE): CellCounts(decode_steps, 1.0, 100.0, 8 * decode_steps),
        Cell(8, 3, StepKind.MIXED): CellCounts(1000.0, 9.0, 100.0, 8000.0),
    }
    assert Traffic().updated(cells, 10.0, WINDOW_S).kind(8) is kind


def test_prompts_in_nearly_every_step_keep_no_fleet_from_its_best_depth() -> None:
    """Steps without a prompt are enough to be counted, and too few to be seen in any one look."""
    fleet = hours_long(
        settings=replace(WINDOW_30, tokens=6),
        hardware=Hardware(per_token_s=0.00067, per_token_request_s=0.00016),
        acceptance=HARD,
    )
    for pod in fleet.pods:
        pod.mixed_share = 0.995
    assert fleet.run(900).shortfall() <= 0.03


def moved_on() -> Situation:
    """Nothing is known yet, and traffic has just gone from batch 2 to batch 8."""
    fleet = Fleet(
        acceptance=MIDDLE, concurrency=2, jitter=0, settings=replace(SETTINGS, probing=False)
    )
    fleet.run(30)
    fleet.concurrency = 8
    fleet.run(21)
    assert fleet.document is not None
    return assess(fleet.snapshot(), fleet.document)


def test_what_is_tried_is_tried_where_it_can_be_measured() -> None:
    policy = moved_on().policy
    probe = ProbePlan(seconds=9.0, pods=2)
    assert set(policy.shares) == {2, 8}
    assert {option.bucket for option in experiments(policy, probe)} == {8}
    other = replace(policy, bounds=replace(policy.bounds, tokens=5))
    assert {option.bucket for option in control(other, probe)} == {8}


def test_where_batches_spread_over_many_buckets_most_of_the_time_decides() -> None:
    buckets = tuple(range(10, 50, 2))
    shares = seen((10.0, buckets)).shares()
    assert sum(shares.values()) >= 0.9
    assert min(shares.values()) == pytest.approx(0.05)


def test_a_bucket_with_little_decides_nothing_where_the_others_have_most() -> None:
    cells = window(8) | {
        Cell(16, 3, StepKind.DECODE): CellCounts(4.0, 0.04, 64.0, 64.0),
    }
    assert set(Traffic().updated(cells, 10.0, WINDOW_S).shares()) == {8}
