"""What is said of steps."""

from collections.abc import Iterable

import pytest

from benchmarks.gpu.figures import GraphCell, change_of, graph_cells, turn_times
from benchmarks.gpu.records import Dispatched, GraphUse, RecordedStep

WRITTEN_AT_S = 10.0


def steps(
    kinds: Iterable[tuple[int, int]], *, batch: int = 4, began_s: float = 9.9
) -> list[RecordedStep]:
    """A step each 0.1 s; of each, the depth that it drafts with, and that it verifies."""
    return [
        RecordedStep(
            scheduled_at_s=began_s + number / 10 - 0.05,
            ended_at_s=began_s + number / 10,
            batch=batch,
            drafting=drafting,
            least=verifying,
            most=verifying,
            plain=True,
        )
        for number, (drafting, verifying) in enumerate(kinds)
    ]


def test_a_change_is_told_from_its_first_step_on() -> None:
    change = change_of(4, 5, WRITTEN_AT_S, steps([(3, 3), (3, 3), (3, 3), (5, 3), (5, 5), (5, 5)]))

    assert change.obeyed
    assert change.drafted_after_ms == pytest.approx(150)
    assert change.steps_until_verified == 1
    assert change.steps == 3
    assert change.disobedient == 0


@pytest.mark.parametrize("slip", [(3, 5), (5, 3), (3, 3)], ids=["drafted", "verified", "both"])
def test_a_step_that_falls_back_disobeys(slip: tuple[int, int]) -> None:
    change = change_of(4, 5, WRITTEN_AT_S, steps([(3, 3), (3, 3), (5, 3), (5, 5), slip, (5, 5)]))

    assert change.disobedient == 1
    assert not change.obeyed


def test_a_step_with_other_lengths_is_not_the_verification() -> None:
    after = steps([(5, 3), (5, 5), (5, 5)], began_s=10.1)
    mixed = after[1]._replace(least=2)

    assert change_of(4, 5, WRITTEN_AT_S, [after[0], mixed, after[2]]).steps_until_verified == 2


def test_a_step_that_was_under_way_when_the_depth_was_written_does_not_count() -> None:
    change = change_of(4, 5, WRITTEN_AT_S, steps([(5, 5)] * 4))

    assert change.drafted_after_ms == pytest.approx(50)
    assert change.steps == 2


def test_prompts_alone_verify_nothing_and_disobey_nothing() -> None:
    after = steps([(5, 3), (5, 5), (5, -1), (5, 5)], began_s=10.1)

    assert change_of(4, 5, WRITTEN_AT_S, after).disobedient == 0


@pytest.mark.parametrize("found", [[], [(3, 3)] * 9], ids=["idle", "as before"])
def test_a_change_that_never_came_is_not_obeyed(found: list[tuple[int, int]]) -> None:
    change = change_of(4, 5, WRITTEN_AT_S, steps(found))

    assert change.drafted_after_ms is None
    assert not change.obeyed


def test_step_times_are_those_of_steps_of_one_kind_after_one_of_the_same() -> None:
    same = steps([(3, 3)] * 6)
    slow = same[-1]._replace(ended_at_s=100.0, drafting=5)

    times = turn_times(same, 4, 3)
    assert times is not None
    assert times.median_ms == pytest.approx(100)
    assert turn_times([*same, slow], 4, 3) == times
    assert turn_times(same[:5], 4, 3) is None
    assert turn_times(same, 8, 3) is None
    assert turn_times([step._replace(plain=False) for step in same], 4, 3) is None


def test_the_fastest_tenth_does_not_see_a_machine_that_others_use() -> None:
    steady = steps([(3, 3)] * 41)
    late_s, disturbed = 0.0, []
    for number, step in enumerate(steady):
        late_s += 0.3 if number > 20 else 0.0
        disturbed.append(step._replace(ended_at_s=step.ended_at_s + late_s))

    times = turn_times(disturbed, 4, 3)
    assert times is not None
    assert times.fastest_ms == pytest.approx(100)
    assert times.median_ms > 200


def test_graphs_are_put_together_by_batch_and_depth() -> None:
    use = GraphUse(
        "V2",
        "FULL_AND_PIECEWISE",
        (8,),
        2,
        {
            Dispatched(4, 3, "FULL"): 5,
            Dispatched(4, 3, "NONE"): 1,
            Dispatched(1, 0, "PIECEWISE"): 2,
        },
        replays=5,
    )

    assert graph_cells(use) == (
        GraphCell(batch=1, depth=0, full=0, piecewise=2, none=0),
        GraphCell(batch=4, depth=3, full=5, piecewise=0, none=1),
    )
