"""What the probe writes is what the benchmark reads."""

from pathlib import Path

from benchmarks.gpu.records import (
    GRAPHS_FILE,
    STEPS_FILE,
    Dispatched,
    GraphUse,
    RecordedStep,
    StartUp,
    read_graph_use,
    read_start_up,
    read_steps,
    step_count,
)

FIRST = RecordedStep(1.5, 2.5, batch=64, drafting=7, least=-1, most=-1, plain=False)
SECOND = RecordedStep(2.0, 3.5, batch=64, drafting=3, least=7, most=7, plain=True)


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


def test_what_graphs_took_is_read_from_the_log_of_the_real_capture() -> None:
    log = """
        INFO [model_runner.py:1127] Graph capturing finished in 9 secs, took 9.41 GiB
        INFO [gpu_worker.py:759] Available KV cache memory: 22.52 GiB
        INFO [kv_cache_utils.py:2327] GPU KV cache size: 2,708,338 tokens, Maximum concurrency
        INFO [model_runner.py:1127] Graph capturing finished in 14 secs, took 3.74 GiB
        INFO [gpu_worker.py:971] CUDA graph pool memory: 3.74 GiB (actual), 9.47 GiB (estimated),
    """
    assert read_start_up(log) == StartUp(14, 3.74, 9.47, 2_708_338)
    assert read_start_up("INFO nothing of it") == StartUp(None, None, None, None)
