"""What live depth costs in CUDA graphs, told of a spec."""

from typing import Any

import pytest

from fathom.engine.cuda_graphs import Replayed
from fathom.validation.engine_checks import GraphPrice, fitting_graphs, graph_price
from fathom.validation.gpu_memory_checks import graph_cost
from manifest_samples import resource
from support.validated import candidate
from support.work import work_of

GIB = 1 << 30
H100 = {"nodePool.accelerator": "H100"}


def price(changes: dict[str, Any]) -> GraphPrice:
    found = graph_price(resource(H100 | changes).engine)
    assert isinstance(found, GraphPrice)
    return found


def test_the_static_twin_drafts_at_tokens_at_every_batch() -> None:
    found = price({"engine.args": ["--max-num-seqs", "64"]})
    assert found.static.depths == {3}
    assert found.static.max_num_seqs == found.live.max_num_seqs == 64
    for batch in range(1, 65):
        assert found.static.replayed(batch, 3) is Replayed.FULL


def test_live_depth_costs_more_graphs_and_what_they_take() -> None:
    found = price({})
    live, static = found.captured
    assert live > static > 0
    with_live, without = graph_cost(found.live.captured), graph_cost(found.static.captured)
    assert 6 * GIB < with_live.memory_bytes < 8 * GIB
    assert 2 * GIB < without.memory_bytes < 3 * GIB


@pytest.mark.parametrize(
    ("args", "times"),
    [
        (["--enable-lora"], 2),
        (["--enable-lora", "--max-loras", "8"], 2),
        (["--enable-lora", "--specialize-active-lora"], 3),
        (["--enable-lora", "--max-loras", "8", "--specialize_active_lora"], 6),
        (["--enable-lora", "--max-loras=3", "--specialize-active-lora"], 4),
        (["--enable-lora", "--no-enable-lora"], 1),
        (["--max-loras", "8", "--specialize-active-lora"], 1),
    ],
)
def test_adapters_multiply_the_targets_graphs_and_no_others(args: list[str], times: int) -> None:
    plain, found = price({}), price({"engine.args": args})
    for ours, with_adapters in ((plain.live, found.live), (plain.static, found.static)):
        assert with_adapters.captured.target == times * ours.captured.target
        drafts = ours.captured.total - ours.captured.target
        assert with_adapters.captured.total == times * ours.captured.target + drafts
    assert graph_cost(found.live.captured).memory_bytes >= times * 6 * GIB


def test_an_interactive_engine_has_a_size_for_each_small_step_where_vllm_chooses() -> None:
    interactive = {"engine.args": ["--performance-mode", "interactivity"]}
    found, usual = price(interactive), price({})
    assert {*range(1, 33)} - {*usual.static.sizes}
    assert found.static.sizes == tuple(sorted({*range(1, 33)} | {*usual.static.sizes}))
    assert found.live == usual.live
    plenty = price({"engine.args": ["--performance-mode", "throughput"]}).static
    assert not {*range(1, 33)} <= {*plenty.sizes}
    own_depths = {"speculation.depths": [1, 2, 3, 4]}
    assert {*range(1, 33)} <= {*price(interactive | own_depths).live.sizes}


def test_nothing_is_captured_beyond_the_tokens_of_one_step() -> None:
    args = ["--max-num-seqs", "64", "--max-num-batched-tokens", "100"]
    assert price({"engine.args": args[:2]}).static.sizes[-1] == 512
    found = price({"engine.args": args})
    assert (found.live.sizes[-1], found.static.sizes[-2:]) == (96, (96, 100))


def test_of_a_draft_whose_graphs_are_not_known_only_the_targets_count() -> None:
    draft = {"draft.method": "draft_model", "draft.tensorParallelSize": 4}
    found = price(draft)
    assert not found.counts_draft
    assert found.captured == (found.live.captured.target, found.static.captured.target)


@pytest.mark.parametrize(
    ("depth", "most_seqs", "reach"), [(3, 1024, 128), (7, 1024, 64), (3, 127, 127), (3, 129, 128)]
)
def test_beyond_the_largest_size_a_batch_has_no_graph(
    depth: int, most_seqs: int, reach: int
) -> None:
    """512 tokens, and a step takes the depth and one of each request."""
    found = price({"engine.args": ["--max-num-seqs", str(most_seqs)]}).live
    assert found.reach(depth) == reach
    assert found.replayed(reach, depth) is Replayed.FULL
    assert found.replayed(129, 3) is not Replayed.FULL


def test_what_is_missed_is_counted_within_reach_and_to_its_last_batch() -> None:
    own = {"speculation.depths": [1, 2, 3, 4], "engine.args": ["--max-num-seqs", "200"]}
    found = price(own).live
    for depth in (1, 2, 3, 4):
        most = min(512 // (depth + 1), 200)
        batches = range(1, most + 1)
        missed = [each for each in batches if found.replayed(each, depth) is not Replayed.FULL]
        assert found.missed(depth) == len(missed)
    assert found.missed(1) > 0
    on_a_grid = price({"engine.args": ["--max-num-seqs", "200"]}).live
    # Beyond its reach there is none either, which is not counted.
    assert [on_a_grid.missed(depth) for depth in (1, 3, 7)] == [0, 0, 0]
    assert on_a_grid.replayed(65, 7) is not Replayed.FULL


def test_batches_without_a_full_graph_are_listed_as_three_ranges_and_counted_beyond() -> None:
    sizes = (3, 13, 24, 38, 54, 59, 72, 83)
    args = ["--max-num-seqs", "16", "--cudagraph-capture-sizes", *map(str, sizes)]
    own = {"speculation.depths": [1, 3], "speculation.maxTokens": 3, "engine.args": args}

    said = graph_price(resource(H100 | own).engine)

    assert isinstance(said, str)
    assert "depth 1 at batches 1, 3 to 6, 8 and 4 more; depth 3 at batches 2 to 3, 16." in said


ALL_TO_4 = {"speculation.depths": [1, 2, 3, 4]}


def refused(changes: dict[str, Any]) -> list[str]:
    return [each.field for each in fitting_graphs(candidate(resource(H100 | changes)))]


def sizes(text: str) -> dict[str, Any]:
    own = {"speculation.depths": [3, 6], "speculation.maxTokens": 6, "speculation.minTokens": 1}
    return own | {"engine.args": text.split(" ")}


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({}, None),
        ({"speculation.depths": [1, 3, 5]}, None),
        (ALL_TO_4, "spec.speculation.depths"),
        (
            ALL_TO_4 | {"nodePool": {"accelerator": "Custom", "gpusPerNode": 8}},
            "spec.speculation.depths",
        ),
        (ALL_TO_4 | {"nodePool.accelerator": "MI300X"}, None),
        (ALL_TO_4 | {"engine.attentionBackend": "TRITON_ATTN"}, None),
        (sizes("-cc.cudagraph_mode=2"), None),
        (ALL_TO_4 | {"draft.method": "draft_model"}, None),
        (ALL_TO_4 | {"nodePool.accelerator": "GB200"}, None),
        (ALL_TO_4 | {"speculation.tuning.mode": "Static"}, None),
        (ALL_TO_4 | {"engine.args": ["--enforce-eager"]}, None),
        (ALL_TO_4 | {"engine.args": ["-O1"]}, None),
        (ALL_TO_4 | {"engine.args": ["-O2"]}, "spec.speculation.depths"),
        ({"speculation.depths": [1, 2, 3, 5], "engine.args": ["-O2"]}, None),
        (sizes('-cc {"pass_config":{}}'), None),
        (sizes("-cc.pass_config.fuse_allreduce_rms=true"), "spec.engine.args"),
        (sizes("-cc.cudagraph_mode=FULL_DECODE_ONLY"), None),
        (
            sizes('--compilation-config {"cudagraph_capture_sizes":[4,8,240,248]}'),
            "spec.engine.args",
        ),
        (sizes('--compilation-config {"cudagraph_capture_sizes":[28,56,84]}'), None),
        (sizes("--cudagraph-capture-sizes 4 8 240 248"), "spec.engine.args"),
        (sizes("--cudagraph-capture-sizes 28 56 240 248 --max-num-batched-tokens 100"), None),
        (sizes("--max-cudagraph-capture-size 512"), "spec.engine.args"),
        (sizes("--max-cudagraph-capture-size 1"), None),
        (sizes("--max-cudagraph-capture-size many"), "spec.engine.args"),
    ],
)
def test_depths_whose_drafts_stray_are_refused_where_that_was_seen_or_is_not_known(
    changes: dict[str, Any], field: str | None
) -> None:
    assert refused(changes) == ([] if field is None else [field])


@pytest.mark.parametrize(
    "stated",
    [
        "--max-cudagraph-capture-size 9999999 --max-num-seqs 9999999",
        f"--max-cudagraph-capture-size {'9' * 5000}",
        f"--cudagraph-capture-sizes 8 5000000 {'9' * 5000} --max-num-seqs 1000000",
        f'-cc {{"cudagraph_capture_sizes":["{"9" * 5000}",8]}}',
    ],
    ids=["large", "no number", "large ones", "no number in JSON"],
)
def test_numbers_that_no_engine_has_are_little_work(stated: str) -> None:
    work = work_of(lambda: refused(sizes(stated)))
    # It took minutes, or the memory of the machine.
    assert work.calls < 1_000_000
    assert work.bytes_at_most < 16 << 20


def test_the_refusal_says_where_and_what_to_do() -> None:
    (problem,) = fitting_graphs(candidate(resource(H100 | ALL_TO_4)))
    assert "at depth 3 and batch 5, " in problem.message
    assert "leave them out, or name depths of which each, plus one, divides" in problem.message
    args = {"engine.args": ["--cudagraph-capture-sizes", "4", "8", "240", "248"]}
    (problem,) = fitting_graphs(candidate(resource(H100 | sizes("x") | args)))
    assert "at depth 3 and batch 3, 61, drafts replay" in problem.message
    assert "Fathom adds sizes that fit" in problem.message
