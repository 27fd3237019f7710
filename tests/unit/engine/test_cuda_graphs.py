"""The model of vLLM's CUDA graphs, at the numbers of docs/design/0024-depths-on-a-grid.md.

tests/engine/test_graphs_equal_vllms.py holds it against vLLM itself.
"""

from dataclasses import replace

import pytest

from fathom.engine.cuda_graphs import Captured, GraphMode, Graphs, Replayed, default_sizes
from fathom.engine.depth import depth_at
from fathom.engine.depth_set import capture_sizes, startup_schedule

MAX_NUM_SEQS = 256
H100, GB200 = 512, 1024


def on_default_sizes(depths: tuple[int, ...], ceiling: int) -> Graphs:
    schedule = startup_schedule(depths, MAX_NUM_SEQS)
    found = [depth_at(schedule, batch) for batch in range(1, MAX_NUM_SEQS + 1)]
    sizes = default_sizes(found, max(depths), ceiling=ceiling, max_num_batched_tokens=8192)
    return graphs(depths, sizes)


def on_the_grid(depths: tuple[int, ...], ceiling: int) -> Graphs:
    return graphs(depths, capture_sizes(depths, MAX_NUM_SEQS, ceiling))


def graphs(depths: tuple[int, ...], sizes: tuple[int, ...]) -> Graphs:
    return Graphs(
        mode=GraphMode.FULL_AND_PIECEWISE,
        sizes=sizes,
        max_num_seqs=MAX_NUM_SEQS,
        depths=frozenset(depths),
        deepest=max(depths),
    )


def missed(found: Graphs, depth: int) -> int:
    return sum(found.replayed(batch, depth) is not Replayed.FULL for batch in range(1, 65))


@pytest.mark.parametrize(("ceiling", "total"), [(H100, 235), (GB200, 363)])
def test_an_engine_of_one_depth_misses_none(ceiling: int, total: int) -> None:
    found = on_default_sizes((3,), ceiling)
    assert missed(found, 3) == 0
    assert found.captured.total == total


@pytest.mark.parametrize(("ceiling", "total"), [(H100, 1340), (GB200, 1956)])
def test_all_depths_take_graphs_from_each_other(ceiling: int, total: int) -> None:
    found = on_default_sizes(tuple(range(8)), ceiling)
    assert [missed(found, depth) for depth in range(8)] == [20, 24, 29, 20, 22, 16, 11, 0]
    assert found.captured.total == total


@pytest.mark.parametrize(("ceiling", "total"), [(H100, 612), (GB200, 804)])
def test_depths_on_a_grid_have_all_of_theirs(ceiling: int, total: int) -> None:
    depths = (0, 1, 3, 7)
    found = on_the_grid(depths, ceiling)
    assert [missed(found, depth) for depth in depths] == [0] * len(depths)
    assert found.captured.total == total


def test_a_depth_that_is_not_named_runs_piecewise_and_beyond_the_sizes_nothing_does() -> None:
    found = on_the_grid((0, 1, 3, 7), H100)
    assert found.replayed(8, 4) is Replayed.PIECEWISE
    assert found.replayed(64, 7) is Replayed.FULL
    assert found.replayed(65, 7) is Replayed.NONE


def test_drafts_stray_where_an_h100_took_seconds() -> None:
    """docs/gpu.md: 61 at depth 3 ran piecewise in 248 tokens, where their drafts found 62's graph.

    Of the batches from 48 to 64 it had, these six ran piecewise, and each had such steps.
    """
    depth_at = [3] * 249 + [0, 1, 2, 4, 5, 6, 7]
    sizes = default_sizes(depth_at, 7, ceiling=H100, max_num_batched_tokens=8192)
    found = graphs(tuple(range(8)), sizes)
    assert {*found.strays[3]} & {*range(48, 65)} == {49, 51, 55, 57, 59, 61}
    assert {depth: len(each) for depth, each in found.strays.items()} == {
        0: 118,
        1: 96,
        2: 9,
        3: 35,
    }
    assert found.replayed(61, 3) is Replayed.PIECEWISE
    without_piecewise = replace(found, mode=GraphMode.FULL_DECODE_ONLY)
    assert without_piecewise.missed(3) > 0
    assert without_piecewise.strays == {}


def test_nothing_strays_on_the_grid_or_at_one_depth() -> None:
    assert on_the_grid((0, 1, 3, 7), H100).strays == on_default_sizes((3,), H100).strays == {}


def test_with_adaptive_verification_one_graph_takes_any_length() -> None:
    sizes = (8, 16, 64)
    found = Graphs(
        mode=GraphMode.FULL_AND_PIECEWISE,
        sizes=sizes,
        max_num_seqs=8,
        depths=frozenset({0, 1, 7}),
        deepest=7,
        any_length=True,
    )
    assert found.replayed(3, 4) is Replayed.FULL
    assert found.captured.target_full == len(sizes)


@pytest.mark.parametrize(
    ("mode", "captured"),
    [
        (
            GraphMode.NONE,
            Captured(target_full=0, target_piecewise=0, draft_full=0, draft_piecewise=0),
        ),
        (
            GraphMode.PIECEWISE,
            Captured(target_full=0, target_piecewise=2, draft_full=0, draft_piecewise=2),
        ),
        (
            GraphMode.FULL,
            Captured(target_full=2, target_piecewise=0, draft_full=4, draft_piecewise=0),
        ),
        (
            GraphMode.FULL_DECODE_ONLY,
            Captured(target_full=2, target_piecewise=0, draft_full=4, draft_piecewise=0),
        ),
    ],
)
def test_the_mode_says_what_is_captured(mode: GraphMode, captured: Captured) -> None:
    found = Graphs(mode=mode, sizes=(4, 8), max_num_seqs=8, depths=frozenset({3}), deepest=3)
    assert found.captured == captured
