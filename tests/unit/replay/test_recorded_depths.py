"""What was in force is told by what ran."""

from fathom.measurement.counters import Cell, CellCounts, EngineCounts, StepKind
from fathom.measurement.deltas import PodDelta
from fathom.replay.recording import RecordedDepths

START = RecordedDepths.at_start(3, 16)


def ran(pod: str, steps: dict[tuple[int, int], float]) -> PodDelta:
    """A window of one pod: steps per bucket and depth."""
    cells = {
        Cell(bucket, depth, StepKind.DECODE): CellCounts(count, count, count, count)
        for (bucket, depth), count in steps.items()
    }
    return PodDelta(pod=pod, from_s=0, to_s=30, engine=EngineCounts(), cells=cells, drafts={})


def test_before_anything_ran_it_is_the_users_depth() -> None:
    assert dict(START.updated([]).depths) == dict.fromkeys((*range(1, 9), 10, 12, 14, 16), 3)


def test_a_bucket_takes_the_depth_that_ran_and_keeps_it_while_idle() -> None:
    moved = START.updated([ran("a", {(4, 5): 100}), ran("b", {(4, 5): 90, (4, 3): 10})])
    assert (moved.depths[4], moved.depths[8]) == (5, 3)

    assert moved.updated([ran("a", {(8, 2): 100})]).depths[4] == 5


def test_one_pod_of_two_that_differs_is_a_probe_even_if_it_steps_more() -> None:
    seen = START.updated([ran("a", {(4, 3): 50}), ran("b", {(4, 5): 100})])

    assert seen.depths[4] == 3
    assert seen.deviating == {"b": 5}


def test_most_pods_decide() -> None:
    seen = START.updated(
        [ran("a", {(4, 3): 500}), ran("b", {(4, 5): 100}), ran("c", {(4, 5): 100})]
    )

    assert seen.depths[4] == 5
    assert seen.deviating == {"a": 3}


def test_a_single_pod_moves_the_schedule() -> None:
    seen = START.updated([ran("a", {(4, 3): 40, (4, 5): 60})])

    assert seen.depths[4] == 5
    assert seen.deviating == {}


def test_a_handful_of_steps_says_nothing() -> None:
    assert START.updated([ran("a", {(4, 5): 2})]) == START
