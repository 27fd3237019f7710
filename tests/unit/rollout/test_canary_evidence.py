"""A canary beside the others: what is compared with what."""

from dataclasses import replace
from math import exp, inf, log

import pytest

from fathom.measurement.counters import Cell, CellCounts, EngineCounts, StepKind
from fathom.measurement.deltas import PodDelta
from fathom.rollout.canary_evidence import (
    BATCH_COST,
    CanaryContrast,
    CanaryEvidence,
    slow_share,
    tail_bound,
)

BUCKET = Cell(8, 3, StepKind.DECODE)


def steps(count: float, *, step_s: float, per_request: float, batch: float) -> CellCounts:
    return CellCounts(count, count * step_s, count * per_request * batch, count * batch)


def delta(
    cells: dict[Cell, CellCounts] | None = None, *, pod: str = "p", **engine: float
) -> PodDelta:
    return PodDelta(
        pod=pod, from_s=0, to_s=60, engine=EngineCounts(**engine), cells=cells or {}, drafts={}
    )


def compared(canary: PodDelta, *stable: PodDelta) -> CanaryContrast:
    return CanaryEvidence().updated([canary], stable).speed


def test_speed_is_tokens_per_request_and_second_at_the_same_batch_and_depth() -> None:
    ours = delta({BUCKET: steps(1000, step_s=0.02, per_request=3.3, batch=6)})
    theirs = delta({BUCKET: steps(2000, step_s=0.02, per_request=3.0, batch=6)})
    assert compared(ours, theirs).mean == pytest.approx(log(1.1))


def test_other_batches_and_depths_are_not_compared() -> None:
    ours = delta({BUCKET: steps(1000, step_s=0.02, per_request=3.3, batch=6)})
    for cell in (replace(BUCKET, batch_le=16), replace(BUCKET, depth=5)):
        theirs = delta({cell: steps(1000, step_s=0.01, per_request=3.0, batch=6)})
        assert compared(ours, theirs).windows == 0


def test_an_engine_without_drafts_is_compared_at_whatever_depth_the_others_ran() -> None:
    """A probe at depth 0 is not what the others serve at."""
    none = replace(BUCKET, depth=0)
    ours = delta({none: steps(1000, step_s=0.01, per_request=1, batch=6)})
    theirs = delta(
        {
            BUCKET: steps(990, step_s=0.02, per_request=3, batch=6),
            none: steps(60, step_s=0.011, per_request=1, batch=6),
        }
    )
    speed = (990 * 3 + 60) / (990 * 0.02 + 60 * 0.011)
    assert compared(ours, theirs).mean == pytest.approx(log(100 / speed))
    assert compared(theirs, ours).mean == pytest.approx(log(speed / 100))


def test_what_drafts_again_in_the_middle_of_a_window_is_compared_at_the_depth_that_both_ran() -> (
    None
):
    """The document moves from depth 0 to 3, and the canary has it a minute later."""
    none = replace(BUCKET, depth=0)
    ours = delta({none: steps(6000, step_s=0.01, per_request=1, batch=6)})
    theirs = delta(
        {
            none: steps(6000, step_s=0.01, per_request=1, batch=6),
            BUCKET: steps(3000, step_s=0.02, per_request=3, batch=6),
        }
    )
    assert compared(ours, theirs).mean == pytest.approx(0)


def test_drafts_are_compared_at_whatever_depth_each_runs() -> None:
    """A little time at one depth of both is not what either serves at."""
    other = replace(BUCKET, depth=1)
    ours = delta({BUCKET: steps(1000, step_s=0.02, per_request=3.6, batch=6)})
    theirs = delta(
        {
            other: steps(900, step_s=0.012, per_request=1.5, batch=6),
            BUCKET: steps(100, step_s=0.02, per_request=3.6, batch=6),
        }
    )
    found = CanaryEvidence().updated([ours], [theirs], at_own_depth=True).speed
    speed = (900 * 1.5 + 100 * 3.6) / (900 * 0.012 + 100 * 0.02)
    assert found.mean == pytest.approx(log(3.6 / 0.02 / speed))
    assert compared(ours, theirs).mean == pytest.approx(0)


def test_what_is_left_of_a_difference_in_batch_is_evened_out() -> None:
    """A fuller replica has longer steps, which is no fault of its engine."""
    ours = delta({BUCKET: steps(1000, step_s=0.02 * exp(BATCH_COST), per_request=3, batch=8)})
    theirs = delta({BUCKET: steps(1000, step_s=0.02, per_request=3, batch=4)})
    assert compared(ours, theirs).mean == pytest.approx(0)


def test_a_few_steps_tell_nothing() -> None:
    many = delta({BUCKET: steps(2000, step_s=0.02, per_request=3, batch=6)})
    few = delta({BUCKET: steps(29, step_s=0.04, per_request=3, batch=6)})
    assert compared(few, many).windows == compared(many, few).windows == 0
    enough = delta({BUCKET: steps(30, step_s=0.04, per_request=3, batch=6)})
    assert compared(enough, many).windows == 1


def test_cells_weigh_by_the_time_of_the_side_that_has_less() -> None:
    other = replace(BUCKET, depth=5)
    ours = delta(
        {
            BUCKET: steps(1000, step_s=0.02, per_request=3, batch=6),
            other: steps(100, step_s=0.02, per_request=6, batch=6),
        }
    )
    theirs = delta(
        {
            BUCKET: steps(500, step_s=0.02, per_request=3, batch=6),
            other: steps(1000, step_s=0.02, per_request=3, batch=6),
        }
    )
    found = compared(ours, theirs)
    assert found.weight == pytest.approx(12)
    assert found.mean == pytest.approx(log(2) * 2 / 12)


def test_engines_that_do_not_count_by_batch_compare_time_per_output_token() -> None:
    ours = delta(tpot_seconds_sum=1.1, tpot_count=100, requests_running=6)
    theirs = delta(tpot_seconds_sum=2.0, tpot_count=200, requests_running=6)
    assert compared(ours, theirs).mean == pytest.approx(log(1 / 1.1))


@pytest.mark.parametrize(
    ("running", "others", "compared_windows"),
    [(12, 6, 0), (6, 12, 0), (10, 8, 1), (10.1, 8, 0), (3, 2, 1), (3.1, 2, 0), (8, 10, 1)],
)
def test_and_only_if_they_are_about_as_full(
    running: float, others: float, compared_windows: float
) -> None:
    ours = delta(tpot_seconds_sum=1.1, tpot_count=100, requests_running=running)
    theirs = delta(tpot_seconds_sum=2.0, tpot_count=200, requests_running=others)
    assert compared(ours, theirs).windows == compared_windows


@pytest.mark.parametrize(("requests", "windows"), [(2, 0), (3, 1)])
def test_and_only_if_some_requests_finished(requests: float, windows: float) -> None:
    few = delta(tpot_seconds_sum=1.0, tpot_count=requests, requests_running=6)
    many = delta(tpot_seconds_sum=2.0, tpot_count=200, requests_running=6)
    assert compared(few, many).windows == compared(many, few).windows == windows


def test_fullness_is_per_replica_and_a_comparison_weighs_what_finished_on_the_lesser_side() -> None:
    ours = delta(tpot_seconds_sum=1.0, tpot_count=100, requests_running=6)
    theirs = [delta(tpot_seconds_sum=1.0, tpot_count=100, requests_running=6) for _ in range(3)]
    found = compared(ours, *theirs)
    assert (found.windows, found.weight, found.mean) == (1, 100, pytest.approx(0))


def test_a_window_that_could_not_be_read_is_counted_and_compares_nothing() -> None:
    ours = delta({BUCKET: steps(1000, step_s=0.02, per_request=3, batch=6)})
    found = CanaryEvidence().updated([ours], []).updated([], [ours])
    assert (found.looks, found.blind, found.speed.windows) == (2, 2, 0)


def test_sums_are_over_all_replicas_and_windows() -> None:
    one = replace(
        delta(generation_tokens=10, finished_requests=2, failed_requests=1, preemptions=3),
        tpot=((0.1, 1.0), (inf, 2.0)),
    )
    found = CanaryEvidence().updated([one], [one, one]).updated([one], [one, one])
    assert found.canary.failed == 2
    assert found.stable.finished == 8
    assert found.stable.preemptions == 12
    assert found.stable.tpot == ((0.1, 4.0), (inf, 8.0))


def test_the_error_of_the_mean_comes_from_the_spread_between_windows() -> None:
    spread = CanaryContrast()
    for value in (0.1, -0.1) * 10:
        spread = spread.updated(value, 1.0)
    assert spread.mean == pytest.approx(0)
    # 20 windows, of which two are worth one.
    assert spread.error == pytest.approx(0.1 / 3)
    assert CanaryContrast().updated(0.1, 1.0).error == inf


def test_the_tail_is_where_a_share_of_the_requests_is_slower() -> None:
    histogram = ((0.1, 90.0), (0.2, 96.0), (1.0, 100.0), (inf, 100.0))
    assert tail_bound(histogram, 0.05) == 0.2
    assert slow_share(histogram, 0.2) == pytest.approx(0.04)
    assert tail_bound(((0.1, 0.0), (inf, 100.0)), 0.05) is None
    for nobody in ((), ((0.1, 0.0), (inf, 0.0))):
        assert tail_bound(nobody, 0.05) is None
        assert slow_share(nobody, 0.1) == 0


def test_tails_are_compared_window_by_window_at_the_bound_that_the_others_have_shown() -> None:
    def window(slow: float, requests: float) -> PodDelta:
        return replace(delta(), tpot=((0.1, requests - slow), (1.0, requests), (inf, requests)))

    found = CanaryEvidence().updated([window(3, 10)], [window(1, 50), window(1, 50)])
    assert (found.tpot_tail.windows, found.tpot_tail.weight) == (1, 10)
    assert found.tpot_tail.mean == pytest.approx(0.3 - 0.02)
    # In the next one 10 of 200 are slow: still no more than 5 %, so that the bound stays.
    found = found.updated([window(0, 30)], [window(8, 100)])
    assert found.tpot_tail.mean == pytest.approx((10 * 0.28 - 30 * 0.08) / 40)
    # One more, and the bound is the next one, beyond which there is nobody.
    found = found.updated([window(30, 30)], [window(3, 3)])
    assert found.tpot_tail.mean == pytest.approx((10 * 0.28 - 30 * 0.08) / 70)
    assert found.ttft_tail.windows == 0


@pytest.mark.parametrize("side", ["canary", "stable"])
def test_a_window_without_requests_on_one_side_compares_no_tail(side: str) -> None:
    some = replace(delta(), ttft=((0.1, 9.0), (1.0, 10.0), (inf, 10.0)))
    none = replace(delta(), ttft=((0.1, 0.0), (1.0, 0.0), (inf, 0.0)))
    before = CanaryEvidence().updated([some], [some])
    after = before.updated(*(([none], [some]) if side == "canary" else ([some], [none])))
    assert after.ttft_tail == before.ttft_tail
    assert before.ttft_tail.windows == 1
