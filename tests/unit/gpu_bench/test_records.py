"""What the probe writes is what the benchmark reads."""

from pathlib import Path

from fathom_local.gpu_bench.records import (
    GRAPHS_FILE,
    STEPS_FILE,
    Dispatched,
    GraphUse,
    Step,
    read_graph_use,
    read_steps,
    step_count,
)

FIRST = Step(1.5, 2.5, batch=64, drafting=7, least=-1, most=-1, plain=False)
SECOND = Step(2.0, 3.5, batch=64, drafting=3, least=7, most=7, plain=True)


def test_steps_are_read_from_any_on_and_one_that_is_half_written_is_left(tmp_path: Path) -> None:
    (tmp_path / STEPS_FILE).write_bytes(FIRST.packed() + SECOND.packed() + SECOND.packed()[:9])

    assert step_count(tmp_path) == 2
    assert read_steps(tmp_path) == [FIRST, SECOND]
    assert read_steps(tmp_path, 1) == [SECOND]
    assert SECOND.verifies(7)
    assert not SECOND.verifies(3)


def test_an_engine_that_made_no_step_has_none(tmp_path: Path) -> None:
    assert step_count(tmp_path) == 0
    assert read_steps(tmp_path) == []


def test_graphs_are_read_as_written_and_told_since_an_earlier_look(tmp_path: Path) -> None:
    full, none = Dispatched(4, 3, "FULL"), Dispatched(64, 7, "NONE")
    before = GraphUse("V2", "FULL_AND_PIECEWISE", (1, 8), 20, {full: 5}, replays=5)
    after = GraphUse("V2", "FULL_AND_PIECEWISE", (1, 8), 20, {full: 5, none: 2}, replays=9)
    (tmp_path / GRAPHS_FILE).write_text(after.to_json())

    assert read_graph_use(tmp_path) == after
    assert after.since(before) == GraphUse(
        "V2", "FULL_AND_PIECEWISE", (1, 8), 20, {none: 2}, replays=4
    )
