from dataclasses import replace
from math import exp, log, log2, sqrt

import pytest

from fathom.measurement.counters import Cell, CellCounts, EngineCounts, StepKind
from fathom.measurement.deltas import PodDelta
from fathom.tuning.estimate.step_filter import MOST_CELLS, MOST_PODS, updated
from fathom.tuning.estimate.step_table import SLOPE_PRIOR, StepTable
from fathom.tuning.estimate.step_time import PRESENT_S, StepTimes

D, M = StepKind.DECODE, StepKind.MIXED


def counted(
    pod: str, at_s: float, *cells: tuple[int, int, float], kind: StepKind = D, steps: float = 1000
) -> PodDelta:
    """One window of a pod; cells are (bucket, depth, seconds a step)."""
    return PodDelta(
        pod=pod,
        from_s=at_s - 10,
        to_s=at_s,
        engine=EngineCounts(),
        cells={
            Cell(bucket, depth, kind): CellCounts(steps, steps * seconds, steps, steps * bucket)
            for bucket, depth, seconds in cells
        },
        drafts={},
    )


def ratio(times: StepTimes, bucket: int, to: int, start: int, now_s: float = 100.0) -> float:
    a, b = (
        StepTable(times, now_s).estimate(bucket, to, D),
        StepTable(times, now_s).estimate(bucket, start, D),
    )
    assert a is not None
    assert b is not None
    return exp(a.log_seconds - b.log_seconds)


def test_nothing_measured_is_no_estimate() -> None:
    assert StepTable(StepTimes(), 0.0).estimate(4, 3, D) is None


def test_steps_without_requests_tell_nothing() -> None:
    empty = counted("a", 10.0, (4, 3, 0.01))
    counts = replace(empty.cells[Cell(4, 3, D)], scheduled_requests=0.0)
    assert updated(StepTimes(), [replace(empty, cells={Cell(4, 3, D): counts})]) == StepTimes()


def test_a_slow_pod_does_not_make_its_depth_look_slow() -> None:
    times = StepTimes()
    for i in range(1, 11):
        times = updated(
            times, [counted("a", 10.0 * i, (4, 3, 0.010)), counted("b", 10.0 * i, (4, 3, 0.012))]
        )
    times = updated(times, [counted("b", 110.0, (4, 5, 0.0132))])

    assert ratio(times, 4, 5, 3) == pytest.approx(1.1, abs=0.02)


def test_a_slow_moment_does_not_make_a_depth_look_slow() -> None:
    times = StepTimes()
    for i in range(1, 31):
        times = updated(times, [counted("a", 10.0 * i, (4, 3, 0.010))])
    for i in range(31, 40):
        times = updated(times, [counted("a", 10.0 * i, (4, 3, 0.015))])
    times = updated(times, [counted("a", 400.0, (4, 5, 0.0165))])

    assert ratio(times, 4, 5, 3, 400.0) == pytest.approx(1.1, abs=0.03)


def test_a_cliff_that_no_line_foretold_is_the_new_depths_and_not_the_pods() -> None:
    times = StepTimes()
    for i in range(1, 31):
        times = updated(times, [counted("a", 10.0 * i, (4, 3, 0.010), (4, 5, 0.010))])
    for i in range(31, 33):
        times = updated(times, [counted("a", 10.0 * i, (4, 1, 0.001))])

    assert ratio(times, 4, 1, 3, 320.0) == pytest.approx(0.1, rel=0.1)
    assert times.speed() == pytest.approx(0.0, abs=0.05)


def test_a_jump_at_a_depth_that_is_known_is_the_pods() -> None:
    times = StepTimes()
    for i in range(1, 31):
        times = updated(times, [counted("a", 10.0 * i, (4, 3, 0.010), (4, 5, 0.012))])
    times = updated(times, [counted("a", 310.0, (4, 3, 0.020))])

    assert ratio(times, 4, 5, 3, 310.0) == pytest.approx(1.2, rel=0.05)
    assert times.speed() == pytest.approx(log(2), abs=0.1)


def test_a_depth_between_two_measured_ones_is_interpolated() -> None:
    times = updated(
        StepTimes(),
        [counted("a", 100.0, (4, 1, 0.010), (4, 3, 0.012), (4, 5, 0.014), steps=100_000)],
    )
    estimate = StepTable(times, 100.0).estimate(4, 4, D)
    assert estimate is not None
    assert not estimate.measured
    assert exp(estimate.log_seconds) == pytest.approx(0.013, rel=0.02)


def error_of(times: StepTimes, depth: int) -> float:
    estimate = StepTable(times, 100.0).estimate(4, depth, D)
    assert estimate is not None
    return sqrt(estimate.variance)


@pytest.mark.parametrize("depth", [2, 3, 4])
def test_between_two_depths_of_very_different_times_a_cliff_may_be_anywhere(depth: int) -> None:
    ends = (4, 1, 0.010), (4, 5, 0.040)
    far = updated(StepTimes(), [counted("a", 100.0, *ends, steps=100_000)])
    share = (depth - 1) / 4

    assert error_of(far, depth) == pytest.approx(log(4) * sqrt(share * (1 - share)), rel=0.1)


def test_between_two_depths_of_the_same_time_there_is_no_cliff() -> None:
    ends = (4, 1, 0.010), (4, 5, 0.040)
    far, near = (
        updated(StepTimes(), [counted("a", 100.0, *cells, steps=100_000)])
        for cells in (ends, (*ends, (4, 3, 0.010)))
    )
    assert error_of(near, 2) < 0.25 * error_of(far, 2)


def test_the_slope_is_borrowed_from_the_nearest_bucket_that_knows_its_own() -> None:
    times = updated(
        StepTimes(),
        [counted("a", 100.0, (4, 1, 0.010), (4, 5, 0.020), (8, 1, 0.012), steps=100_000)],
    )
    assert ratio(times, 8, 5, 1) == pytest.approx(2.0, rel=0.15)
    assert StepTable(times, 100.0).compared_elsewhere(8, D)


def test_the_further_the_guess_the_wider_its_error() -> None:
    times = updated(StepTimes(), [counted("a", 100.0, (4, 3, 0.010), steps=100_000)])
    variances = []
    for bucket, depth in ((4, 3), (4, 4), (4, 7), (32, 7)):
        estimate = StepTable(times, 100.0).estimate(bucket, depth, D)
        assert estimate is not None
        variances.append(estimate.variance)
    assert variances == sorted(variances)


def test_knowledge_of_hardware_fades_slowly() -> None:
    times = updated(StepTimes(), [counted("a", 100.0, (4, 3, 0.010), steps=100_000)])
    fresh, old = (
        StepTable(times, 100.0).estimate(4, 3, D),
        StepTable(times, 100.0 + 3600).estimate(4, 3, D),
    )
    assert fresh is not None
    assert old is not None
    assert fresh.variance < old.variance
    assert old.measured


def test_mixed_steps_are_kept_apart() -> None:
    times = updated(
        StepTimes(),
        [
            counted("a", 100.0, (4, 3, 0.010)),
            counted("a", 100.0, (4, 3, 0.030), kind=M, steps=100_000),
        ],
    )
    mixed = StepTable(times, 100.0).at(4, 3, M)
    assert mixed is not None
    assert mixed.log_seconds == pytest.approx(log(0.03), abs=0.05)


def test_in_mixed_steps_a_draft_takes_what_a_token_of_a_prompt_does_and_its_drafting() -> None:
    whole_s, price_s, batch = 0.06, 1e-4, 16
    measured = counted("a", 100.0, (batch, 7, whole_s), kind=M, steps=100_000)
    table = StepTable(updated(StepTimes(), [measured]), 100.0, price=price_s)

    without_s = whole_s - 7 * batch * price_s
    each = SLOPE_PRIOR[0] + batch * price_s / without_s
    found = table.estimate(batch, 3, M)
    assert found is not None
    assert exp(found.log_seconds) == pytest.approx(whole_s * (1 + 3 * each) / (1 + 7 * each), 0.01)


def test_a_time_of_the_bucket_beside_is_known_to_some_tenths() -> None:
    times = updated(StepTimes(), [counted("a", 100.0, (4, 3, 0.010), steps=100_000)])
    found = StepTable(times, 100.0).estimate(8, 3, D)
    assert found is not None
    assert 0.05 < sqrt(found.variance) < 0.3


def test_it_stays_bounded() -> None:
    times = StepTimes()
    for i in range(MOST_PODS + 20):
        times = updated(times, [counted(f"pod-{i}", 10.0 * i, (4, i % 7, 0.01))])
    for depth in range(64):
        for bucket in (1, 2, 4, 8):
            times = updated(times, [counted("x", 5000.0 + depth, (bucket, depth, 0.01))])
    assert len(times.pods) <= MOST_PODS
    assert len(times.cells) <= MOST_CELLS


def test_what_is_usual_for_a_pod_is_its_last_hundred_windows() -> None:
    times = StepTimes()
    for i in range(1, 601):
        times = updated(times, [counted("a", 10.0 * i, (4, 3, 0.010))])
    assert times.pods[0].usual_windows == pytest.approx(100, rel=0.01)


def test_steps_without_drafts_tell_nothing_of_what_a_token_costs() -> None:
    """To draft at all costs more here than any further token."""
    cells = (4, 0, 0.005), (4, 1, 0.010), (4, 2, 0.0105), (4, 3, 0.011)
    times = updated(StepTimes(), [counted("a", 100.0, *cells, steps=100_000)])
    assert ratio(times, 4, 4, 3) == pytest.approx(0.0115 / 0.011, rel=0.01)


def test_no_line_says_much_of_what_it_takes_to_draft_at_all() -> None:
    times = updated(
        StepTimes(),
        [counted("a", 100.0, (4, 1, 0.010), (4, 2, 0.0105), (4, 3, 0.011), steps=100_000)],
    )
    assert error_of(times, 0) > 0.1 > 2 * error_of(times, 4)


def test_where_the_line_bends_the_nearest_depths_count_most() -> None:
    """Steep up to depth 6, flat from there."""
    cells = (4, 1, 0.006), (4, 6, 0.018), (4, 7, 0.0182), (4, 8, 0.0184)
    times = updated(StepTimes(), [counted("a", 100.0, *cells, steps=100_000)])
    assert ratio(times, 4, 9, 8) < 1.1


def test_a_guess_is_about_as_wrong_as_depths_that_are_known_lie_off_their_line() -> None:
    """Up and down by three percent."""
    cells = [(4, depth, 0.010 * (1.03 if depth % 2 else 0.97)) for depth in range(1, 6)]
    times = updated(StepTimes(), [counted("a", 100.0, *cells, steps=100_000)])
    assert 0.03 < error_of(times, 6) < 0.08


def test_what_a_new_pod_shows_of_a_new_depth_is_the_depths() -> None:
    """Pods differ by a few percent, a guess of a depth's step time by more."""
    times = updated(StepTimes(), [counted("a", 100.0, (4, 3, 0.010), steps=100_000)])
    times = updated(times, [counted("b", 100.0, (4, 5, 0.014), steps=100_000)])
    assert ratio(times, 4, 5, 3) == pytest.approx(1.4, rel=0.1)


def test_prompts_that_are_longer_for_a_while_slow_no_pod() -> None:
    times = StepTimes()
    for i in range(1, 21):
        prefill_s = 0.030 if i <= 10 else 0.040
        both = dict(counted("a", 10.0 * i, (4, 3, 0.010)).cells)
        both |= counted("a", 10.0 * i, (4, 3, prefill_s), kind=M).cells
        times = updated(times, [replace(counted("a", 10.0 * i), cells=both)])
    assert times.speed() == pytest.approx(0.0, abs=0.005)
    assert StepTable(times, 200.0).at(4, 3, D).log_seconds == pytest.approx(log(0.010), abs=0.005)


def at_batch(at_s: float, batch: float) -> PodDelta:
    cell = CellCounts(1000, 10.0, 1000, 1000 * batch)
    return PodDelta(
        pod="a",
        from_s=at_s - 10,
        to_s=at_s,
        engine=EngineCounts(),
        cells={Cell(8, 3, D): cell},
        drafts={},
    )


@pytest.mark.parametrize(("after_s", "kept"), [(10.0, 0.7), (1e6, 0.0)])
def test_the_batch_of_a_cell_is_smoothed_unless_it_is_long_ago(after_s: float, kept: float) -> None:
    times = updated(StepTimes(), [at_batch(10.0, 8)])
    times = updated(times, [at_batch(10.0 + after_s, 5)])
    (cell,) = times.cells
    assert cell.log_batch == pytest.approx(kept * log2(8) + (1 - kept) * log2(5))


def growing(at_s: float, bucket: int, batch: float, depth: int = 3) -> PodDelta:
    """A window of a pod whose steps take longer by 0.8 (log) per doubling of the batch."""
    seconds = 0.01 * batch ** (0.8 / log(2)) * (1.1 if depth > 3 else 1.0)
    window = counted("a", at_s, (bucket, depth, seconds))
    (cell,) = window.cells
    counts = replace(window.cells[cell], scheduled_requests=1000 * batch)
    return replace(window, cells={cell: counts})


@pytest.mark.parametrize("batch", [29.0, 30.5, 32.0])
def test_a_depth_that_was_tried_at_another_batch_of_its_bucket_is_no_more_sure_than_it_is_right(
    batch: float,
) -> None:
    """The batch goes to and fro within a bucket, and steps grow with it."""
    times = StepTimes()
    for i in range(1, 200):
        times = updated(times, [growing(10.0 * i, 32, 29.0 + i % 2 * 3)])
    times = updated(times, [growing(2000.0, 32, batch, depth=5)])
    table = StepTable(times, 2000.0)
    deep, own = table.estimate(32, 5, D), table.estimate(32, 3, D)
    assert deep is not None
    assert own is not None
    off = deep.log_seconds - own.log_seconds - log(1.1)
    assert abs(off) < 2 * sqrt(deep.variance + own.variance)


def test_a_pod_that_is_gone_does_not_count_in_how_fast_pods_are_now() -> None:
    times = StepTimes()
    for i in range(1, 40):
        at_s = 10.0 * i
        window = [counted("well", at_s, (8, 3, 0.010)), counted("throttled", at_s, (8, 3, 0.014))]
        times = updated(times, window)
    assert times.speed() > 0.1
    for i in range(40, 40 + int(PRESENT_S / 10) + 10):
        times = updated(times, [counted("well", 10.0 * i, (8, 3, 0.010))])
    (well,) = (pod for pod in times.pods if pod.pod == "well")
    assert times.speed() == well.log_factor
    # Should it come back, it is remembered.
    assert {pod.pod for pod in times.pods} == {"well", "throttled"}


def test_a_stall_in_a_depths_only_window_is_believed_until_its_next() -> None:
    """A Prometheus that scrapes each half minute gives a probe one window."""
    times = StepTimes()
    for i in range(1, 41):
        times = updated(times, [counted("a", 30.0 * i, (16, 3, 0.015))])
    times = updated(times, [counted("a", 1230.0, (16, 7, 0.0165 * 1.25))])
    for i in range(2):
        times = updated(times, [counted("a", 1260.0 + 30 * i, (16, 3, 0.015))])
    times = updated(times, [counted("a", 1320.0, (16, 7, 0.0165))])

    assert ratio(times, 16, 7, 3, now_s=1320.0) == pytest.approx(1.1, abs=0.02)


def test_what_was_wrong_an_hour_ago_does_not_make_pods_look_slow() -> None:
    """Three windows just after a change, when prompts that had waited came all at once."""
    times = StepTimes()
    for i in range(1, 41):
        times = updated(times, [counted("a", 30.0 * i, (384, 3, 0.018))])
    for i in range(3):
        times = updated(times, [counted("a", 1230.0 + 10 * i, (320, 1, 0.009))])
    for i in range(200):
        times = updated(times, [counted("a", 1290.0 + 30 * i, (384, 3, 0.018))])
    for i in range(2):
        times = updated(times, [counted("a", 7300.0 + 30 * i, (320, 1, 0.013))])

    assert times.speed() == pytest.approx(0.0, abs=0.03)
    assert StepTable(times, 7330.0).at(320, 1, D).log_seconds == pytest.approx(log(0.013), abs=0.01)


def test_of_a_large_fleet_the_speeds_of_the_same_pods_are_kept() -> None:
    names = [f"pod-{i:03d}" for i in range(60)]
    times, kept = StepTimes(), []
    for i in range(1, 6):
        order = names if i % 2 else names[::-1]
        times = updated(times, [counted(name, 10.0 * i, (16, 3, 0.015)) for name in order])
        kept.append({each.pod for each in times.pods})
    assert len(kept[0]) == MOST_PODS
    assert all(each == kept[0] for each in kept)


def test_a_pod_that_is_gone_makes_room_for_another() -> None:
    times = StepTimes()
    old = [f"old-{i:02d}" for i in range(MOST_PODS)]
    times = updated(times, [counted(name, 10.0, (16, 3, 0.015)) for name in old])
    times = updated(times, [counted("new", 10.0 + PRESENT_S + 10, (16, 3, 0.015))])
    assert "new" in {each.pod for each in times.pods}


@pytest.mark.parametrize(("slower", "alike"), [(1.1, True), (1.5, False)])
def test_pods_of_two_kinds_are_noticed(slower: float, *, alike: bool) -> None:
    times = StepTimes()
    for i in range(1, 13):
        at_s = 10.0 * i
        pods = [counted("a", at_s, (4, 3, 0.01)), counted("b", at_s, (4, 3, 0.01 * slower))]
        times = updated(times, pods)
    assert times.pods_are_alike is alike
    gone = updated(times, [counted("a", 120.0 + PRESENT_S + 10, (4, 3, 0.01))])
    assert gone.pods_are_alike


def test_until_most_pods_are_known_nobody_says_that_they_are_alike() -> None:
    times = updated(StepTimes(), [counted("a", 10.0, (4, 3, 0.01))])
    assert times.pods_are_alike
    assert times.is_known("a")
    for i in range(2, 15):
        at_s = 10.0 * i
        pods = [counted("a", at_s, (4, 3, 0.01)), counted("b", at_s, (4, 3, 0.01))]
        times = updated(times, pods)
        assert times.pods_are_alike is times.is_known("a")
    assert times.is_known("b")
    for at_s in (150.0, 160.0):
        three = [counted(name, at_s, (4, 3, 0.01)) for name in ("a", "b", "new")]
        times = updated(times, three)
        assert times.pods_are_alike
        assert not times.is_known("new")
