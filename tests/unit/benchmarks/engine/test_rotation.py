"""Who runs when, and for how long."""

from collections import Counter

import pytest

from benchmarks.engine.rotation import Turn, fastest, learning_turns, rotated, steady_turns
from benchmarks.engine.timing import QUICK, EngineBenchTiming
from local_cluster.engine.language import TRAFFIC_CLASSES

DEPTHS = range(8)
TIMINGS = pytest.mark.parametrize("timing", [EngineBenchTiming(), QUICK], ids=["full", "quick"])


def depths(turns: list[Turn]) -> list[int | None]:
    return [turn.depth for turn in turns]


def test_in_the_learning_part_the_tuner_comes_first_and_every_depth_once_a_round() -> None:
    timing = EngineBenchTiming(learning_rounds=3)
    turns = list(learning_turns(timing, DEPTHS, phase=0))
    assert not any(turn.steady for turn in turns)
    for number in range(3):
        one = depths([turn for turn in turns if turn.round == number])
        assert one[0] is None
        assert sorted(depth for depth in one if depth is not None) == list(DEPTHS)


def test_in_the_steady_part_each_arm_is_in_each_place_equally_often() -> None:
    timing = EngineBenchTiming(steady_rounds=6, contenders=2)
    turns = list(steady_turns(timing, (5, 7), phase=1))
    assert all(turn.steady and turn.seconds == timing.steady_slice_seconds for turn in turns)
    rounds = [depths([turn for turn in turns if turn.round == number]) for number in range(6)]
    for place in range(3):
        assert Counter(one[place] for one in rounds) == {None: 2, 5: 2, 7: 2}


def test_two_phases_do_not_begin_with_the_same_arm() -> None:
    first, second = (next(steady_turns(EngineBenchTiming(), (1, 2), phase)) for phase in (0, 1))
    assert first.depth != second.depth


def test_the_fastest_go_on() -> None:
    assert fastest({0: 10.0, 1: 40.0, 2: 30.0, 3: 41.0}, 2) == (1, 3)
    assert fastest({0: 10.0, 1: 40.0}, 5) == (0, 1)


def test_a_rotation_keeps_the_order() -> None:
    assert rotated("abcd", 1) == tuple("bcda")
    assert rotated("abcd", 6) == tuple("cdab")
    assert rotated("abcd", 0) == tuple("abcd")


@TIMINGS
def test_the_plan_is_as_long_as_its_parts(timing: EngineBenchTiming) -> None:
    turns = [
        *learning_turns(timing, DEPTHS, 0),
        *steady_turns(timing, (1, 2)[: timing.contenders], 0),
    ]
    at_least = sum(turn.seconds for turn in turns)
    assert at_least < timing.phase_seconds(len(DEPTHS)) < 1.5 * at_least
    assert timing.total_seconds(len(DEPTHS)) == pytest.approx(
        len(timing.phases) * timing.phase_seconds(len(DEPTHS))
        + len(TRAFFIC_CLASSES) * len(timing.sweep_concurrencies) * timing.sweep_seconds(len(DEPTHS))
        + timing.price_seconds
    )


@TIMINGS
def test_every_ratio_has_an_interval(timing: EngineBenchTiming) -> None:
    assert timing.learning_rounds >= 2
    assert timing.steady_rounds >= 2
    assert timing.contenders >= 1


def test_the_whole_benchmark_takes_at_most_45_minutes() -> None:
    minutes_to_start_engines = 3
    assert len(EngineBenchTiming().phases) >= 4
    assert EngineBenchTiming().total_seconds(len(DEPTHS)) / 60 + minutes_to_start_engines < 45
