"""What is remembered of a resource: all that was told with its time, in bounded memory."""

import gc
import tracemalloc
from itertools import pairwise
from math import isnan

from fathom.api.conditions import AlarmKind, ConditionType
from fathom.api.status import (
    DecisionStatus,
    DepthStatus,
    MeasuredStatus,
    RolloutStatus,
    SpeculativeDeploymentStatus,
    TuningStatus,
)
from fathom.page.history import (
    KEPT_S,
    LONGEST_MESSAGE,
    MOST_MOMENTS,
    MOST_POINTS,
    History,
    MomentKind,
    moments_of,
)
from fathom.times import rfc3339
from support.page_subjects import condition
from unit.tuning.plant import START_S

WINDOW_S = 30


def decided(number: int, at_s: float) -> DecisionStatus:
    return DecisionStatus(at=rfc3339(at_s), action="Move", reason="Moved", message=f"{number}")


def status(
    at_s: float, tokens_per_second: int = 800, **more: object
) -> SpeculativeDeploymentStatus:
    measured = MeasuredStatus(
        at=rfc3339(at_s),
        window_seconds=WINDOW_S,
        tokens_per_second=tokens_per_second,
        mean_batch="4.0",
        acceptance_length="3.10",
    )
    depth = DepthStatus(schedule=((1, 4, 5), (5, 16, 3)))
    given = {"measured": measured, "depth": depth, **more}
    return SpeculativeDeploymentStatus.model_validate(given)


def test_each_window_is_one_point_however_often_it_is_told() -> None:
    history = History(START_S)
    for late_s in (0, 1, 2):
        history.saw(status(START_S), START_S + late_s)
    history.saw(status(START_S + 30, 900), START_S + 30)

    points = history.points
    assert [(each.at_s, each.tokens_per_second) for each in points] == [
        (START_S, 800),
        (START_S + 30, 900),
    ]
    assert points[0].mean_batch == 4
    assert isnan(points[0].gain_percent)
    # Buckets of one batch each up to 8; then 9-10, 11-12, 13-14 and 15-16.
    assert points[0].depths == bytes([5] * 4 + [3] * 8)


def test_without_traffic_there_are_points_that_know_nothing() -> None:
    history, idle = History(START_S), condition(ConditionType.TUNING, "NoTraffic")
    history.saw(status(START_S), START_S)
    for minute in range(3, 6):
        history.saw(status(START_S, conditions=(idle,)), START_S + 60 * minute)

    times = [each.at_s - START_S for each in history.points]
    assert times == [0, 180, 240, 300]
    assert [isnan(each.tokens_per_second) for each in history.points] == [False, True, True, True]


def test_a_line_breaks_too_where_nobody_says_why_nothing_is_measured() -> None:
    history = History(START_S)
    for minute in range(14):
        history.saw(status(START_S), START_S + 60 * minute)

    # Not before the longest window that a spec may ask for.
    assert [each.at_s - START_S for each in history.points] == [0, 720, 780]


def test_another_depth_is_seen_between_two_windows() -> None:
    history = History(START_S)
    history.saw(status(START_S), START_S)
    history.saw(status(START_S, depth=DepthStatus(schedule=((1, 16, 7),))), START_S + 5)

    assert [set(each.depths) for each in history.points] == [{5, 3}, {7}]


def test_a_day_fits_evenly_and_what_is_older_goes() -> None:
    history = History(START_S)
    for look in range(int(1.5 * KEPT_S / 60)):
        now_s = START_S + 60 * look
        history.saw(status(now_s, look), now_s)

    assert len(history.points) <= MOST_POINTS
    times = [each.at_s for each in history.points]
    gaps = {later - earlier for earlier, later in pairwise(times)}
    assert times[0] >= times[-1] - KEPT_S
    assert times[-1] - times[0] > 0.9 * KEPT_S
    assert max(gaps) <= 2 * min(gaps)


def test_moments_outlive_the_status_that_told_of_them() -> None:
    history = History(START_S)
    told: tuple[DecisionStatus, ...] = ()
    for number in range(100):
        at_s = START_S + 60 * number
        told = (decided(number, at_s), *told)[:10]
        alarm = condition(AlarmKind.DRAFT_MISMATCH, "AcceptanceCollapsed")
        new = status(at_s, tuning=TuningStatus(history=told), conditions=(alarm,))
        history.saw(new, at_s)

    moments = history.moments
    assert len(moments) == MOST_MOMENTS
    # The alarm is the oldest of all, and stands: it stays.
    assert moments[-1].what == "DraftMismatch"
    assert [each.message for each in moments[:3]] == ["99", "98", "97"]
    assert [each.at_s for each in moments] == sorted((each.at_s for each in moments), reverse=True)


def test_a_rollout_is_told_stage_by_stage_with_the_newest_sentence_of_each() -> None:
    history = History(START_S)

    def saw(stage: str, since_s: float, message: str) -> None:
        rollout = RolloutStatus(
            revision="new", stage=stage, since=rfc3339(since_s), reason="R", message=message
        )
        history.saw(status(since_s, rollout=rollout), since_s)

    saw("Canary", START_S, "10 of 300 steps")
    saw("Canary", START_S, "300 of 300 steps")
    saw("RolledBack", START_S + 60, "it is slower")

    assert [(each.what, each.message, each.bad) for each in history.moments] == [
        ("RolledBack", "it is slower", True),
        ("Canary", "300 of 300 steps", False),
    ]
    assert {each.kind for each in history.moments} == {MomentKind.ROLLOUT}


def test_what_has_no_readable_time_is_no_moment() -> None:
    told = TuningStatus(history=(DecisionStatus(at="soon", action="Move", reason="Moved"),))
    assert moments_of(SpeculativeDeploymentStatus(tuning=told)) == ()


def test_what_strangers_write_into_a_status_stops_nothing() -> None:
    history = History(START_S)
    measured = MeasuredStatus(
        at=rfc3339(START_S), tokens_per_second=10**400, mean_batch="inf", acceptance_length="much"
    )
    depth = DepthStatus(schedule=((1, 2**31, 1000),))
    history.saw(SpeculativeDeploymentStatus(measured=measured, depth=depth), START_S)

    (point,) = history.points
    assert isnan(point.tokens_per_second)
    assert isnan(point.mean_batch)
    assert isnan(point.acceptance_length)
    assert set(point.depths) == {255}


def full() -> History:
    """As full as one can be."""
    history = History(START_S)
    for look in range(MOST_POINTS):
        at_s = START_S + 60 * look
        entry = decided(look, at_s).model_copy(update={"message": "m" * 2 * LONGEST_MESSAGE})
        # Another depth each time: no two points share one.
        depth = DepthStatus(schedule=((1, 4, look % 7), (5, 256, look % 5)))
        new = status(at_s, look, depth=depth, tuning=TuningStatus(history=(entry,)))
        history.saw(new, at_s)
    return history


def test_a_full_history_takes_less_than_64_kib() -> None:
    # Once before, for what is kept by others from the first time on.
    full()
    gc.collect()
    tracemalloc.start()
    history = full()
    gc.collect()
    with_it, _ = tracemalloc.get_traced_memory()
    points, moments = len(history.points), len(history.moments)
    del history
    gc.collect()
    # What Python itself keeps, by version: names of methods that C code looked up.
    without_it, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert (points, moments) == (MOST_POINTS, MOST_MOMENTS)
    assert with_it - without_it < 64 * 1024
