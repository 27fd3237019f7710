"""Which depths an engine names, and that each of them finds its full graph."""

from typing import Any

import pytest

from fathom.engine.cuda_graphs import GraphMode, Graphs, Replayed, default_sizes
from fathom.engine.depth_set import capture_sizes, grid_of, richer_tokens
from fathom.engine.profile import profile_of
from manifest_samples import resource


@pytest.mark.parametrize(
    ("speculation", "depths"),
    [
        ({}, (0, 1, 3, 7)),
        ({"tokens": 2}, (0, 1, 2, 3, 5, 7)),
        ({"tokens": 4}, (0, 1, 3, 4, 7)),
        ({"tokens": 6}, (0, 1, 3, 6)),
        ({"maxTokens": 3}, (0, 1, 3)),
        ({"maxTokens": 15}, (0, 1, 3, 7, 15)),
    ],
    ids=str,
)
def test_the_query_lengths_share_a_grid(
    speculation: dict[str, int], depths: tuple[int, ...]
) -> None:
    assert resource({"speculation": speculation}).engine.depths == depths


@pytest.mark.parametrize(
    "changes",
    [
        {"engine.args": ["--enforce-eager"]},
        {"speculation.tuning.mode": "Static"},
        {"engine.image": "vllm/vllm-openai:v0.31.0"},
    ],
    ids=str,
)
def test_all_are_there_where_no_graph_is_at_stake(changes: dict[str, Any]) -> None:
    assert resource(changes).engine.depths == tuple(range(8))


@pytest.mark.parametrize("args", [[], ["--enforce-eager"]], ids=["graphs", "eager"])
def test_a_user_s_own_depths_go_before_all(args: list[str]) -> None:
    speculation = {"depths": [5, 1, 3, 3]}
    spec = resource({"speculation": speculation, "engine.args": args}).spec
    assert profile_of(spec).depths == (0, 1, 3, 5)
    assert spec.speculation.effective_max_tokens == 5


def test_depths_that_share_no_narrow_grid_leave_the_sizes_to_vllm() -> None:
    assert capture_sizes((0, 1, 3, 5), 256, 512)
    assert capture_sizes((0, 1, 2, 3, 4), 256, 512) == ()
    # What one depth needs, the others may share.
    assert capture_sizes((0, 1, 50), 256, 512)


@pytest.mark.parametrize(
    ("speculation", "richer"),
    [
        ({"tokens": 3}, None),
        ({"tokens": 10}, 11),
        ({"tokens": 12}, 13),
        ({"tokens": 12, "maxTokens": 12}, 11),
        ({"tokens": 12, "depths": [1, 12]}, None),
    ],
    ids=str,
)
def test_tokens_that_leave_depths_alone_have_a_better_neighbour(
    speculation: dict[str, Any], richer: int | None
) -> None:
    assert richer_tokens(resource({"speculation": speculation}).spec.speculation) == richer


def test_the_depths_of_one_set_share_it() -> None:
    grids = {tokens: grid_of(tokens, 7) for tokens in range(1, 8)}
    assert grids == {1: 8, 2: 24, 3: 8, 4: 40, 5: 24, 6: 28, 7: 8}


@pytest.mark.parametrize("deepest", [1, 3, 7, 10, 15, 64])
def test_the_set_holds_what_it_must(deepest: int) -> None:
    for tokens in range(1, deepest + 1):
        depths = resource({"speculation": {"tokens": tokens, "maxTokens": deepest}}).engine.depths
        assert {0, 1, tokens} <= set(depths) <= set(range(deepest + 1))


@pytest.mark.parametrize("max_num_seqs", [130, 133, 256])
@pytest.mark.parametrize("depths", [(0, 1, 2), (0, 1, 5), (0, 1, 6), (0, 2, 5), (0, 1, 2, 5)])
def test_no_size_beside_the_grid_s_takes_a_graph(
    depths: tuple[int, ...], max_num_seqs: int
) -> None:
    """The last of sizes for the largest batch alone is rounded up to more than one of them."""
    live = _graphs(depths, capture_sizes(depths, max_num_seqs, 512), max_num_seqs)
    assert [live.missed(depth) for depth in depths] == [0] * len(depths)
    assert live.strays == {}


@pytest.mark.parametrize("ceiling", [512, 1024])
@pytest.mark.parametrize("max_num_seqs", [1, 5, 16, 64, 100, 200, 256, 300, 512, 1024])
@pytest.mark.parametrize("tokens", [2, 3, 4, 6])
def test_every_step_within_reach_has_its_full_graph(
    tokens: int, max_num_seqs: int, ceiling: int
) -> None:
    depths = resource({"speculation.tokens": tokens}).engine.depths
    sizes = capture_sizes(depths, max_num_seqs, ceiling)
    live = _graphs(depths, sizes, max_num_seqs)
    static_sizes = default_sizes(
        [tokens] * max_num_seqs, tokens, ceiling=ceiling, max_num_batched_tokens=8192
    )
    static = _graphs((tokens,), static_sizes, max_num_seqs)

    for batch in range(1, max_num_seqs + 1):
        for depth in depths:
            if batch * (depth + 1) <= sizes[-1]:
                assert live.replayed(batch, depth) is Replayed.FULL
        if static.replayed(batch, tokens) is Replayed.FULL:
            assert live.replayed(batch, tokens) is Replayed.FULL


def _graphs(depths: tuple[int, ...], sizes: tuple[int, ...], max_num_seqs: int) -> Graphs:
    return Graphs(
        mode=GraphMode.FULL_AND_PIECEWISE,
        sizes=sizes,
        max_num_seqs=max_num_seqs,
        depths=frozenset(depths),
        deepest=max(depths),
    )
