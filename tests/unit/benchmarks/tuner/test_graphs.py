"""Worlds whose engines capture CUDA graphs by vLLM's rule."""

import numpy as np
import pytest

from benchmarks.tuner.course.course import WorldCourse
from benchmarks.tuner.course.drawing import draw
from benchmarks.tuner.fleet.settings import settings
from benchmarks.tuner.outcome import outcome_of_depths
from benchmarks.tuner.policies import hindsight
from benchmarks.tuner.policies.windows import windows
from benchmarks.tuner.simulate import CLAIRVOYANT, LEARNERS, POLICIES, USER, campaign
from benchmarks.tuner.worlds.errors import WorldError
from benchmarks.tuner.worlds.files import parse
from benchmarks.tuner.worlds.world import SimulatedWorld
from fathom.api.choices import TuningMode
from unit.benchmarks.tuner.worlds import course, world

SET = {"depths": "set", "sizes": "grid"}
ALL = {"depths": "all", "sizes": "vllm"}
TOKENS = {"depths": "tokens", "sizes": "vllm"}
MILLISECOND_A_TOKEN = {"compute_per_token_us": 1000, "draft_token_ms": 0}


def captured(graphs: dict[str, object], **parts: dict[str, object]) -> SimulatedWorld:
    """A step takes 10 ms and 1 ms for each token, after padding; the engine takes 64 requests."""
    fleet = {"max_batch": 64, "graphs": graphs, **parts.pop("fleet", {})}
    step_time = {**MILLISECOND_A_TOKEN, **parts.pop("step_time", {})}
    return world(fleet=fleet, step_time=step_time, **parts)


def milliseconds(of: SimulatedWorld) -> np.ndarray:
    return 1000 * course(of, hours=0.1).hardware.seconds


def alone_milliseconds(of: SimulatedWorld) -> np.ndarray:
    return 1000 * course(of, hours=0.1).ideal.hardware.seconds


def test_a_full_graph_costs_its_padding_and_no_more() -> None:
    got = milliseconds(captured(SET))
    assert got[25, 0] == pytest.approx(10 + 32)
    assert got[25, 1] == pytest.approx(10 + 56)
    assert got[25, 3] == pytest.approx(10 + 104)
    assert got[25, 7] == pytest.approx(10 + 200)
    assert got[3, 3] == pytest.approx(10 + 12)  # small steps have sizes of their own


def test_a_depth_without_a_graph_of_its_own_runs_piecewise_and_takes_16_percent_more() -> None:
    got = milliseconds(captured(SET))
    assert got[25, 2] == pytest.approx(1.16 * (10 + 80))


def test_depths_take_each_others_graphs_where_all_are_named() -> None:
    """Twenty of batches 1 to 64 at depth 3 run piecewise: what vLLM's own code says of an H100."""
    of = captured(ALL, fleet={"max_batch": 256}, step_time={"compute_per_token_us": 0})
    assert (milliseconds(of)[1:65, 3] > 10.01).sum() == 20
    assert (milliseconds(of)[1:65, 7] > 10.01).sum() == 0


@pytest.mark.parametrize(("ceiling", "factor"), [(512, 1.3), (1024, 1.0)])
def test_beyond_the_largest_size_nothing_is_replayed(ceiling: int, factor: float) -> None:
    of = captured({**SET, "ceiling": ceiling}, fleet={"max_batch": 128})
    assert milliseconds(of)[66, 7] == pytest.approx(factor * (10 + 528))


def test_the_whole_step_takes_longer_attention_included() -> None:
    of = captured(SET, step_time={"attention_per_request_us_per_1k": 500})
    got = course(of, hours=0.1)
    batch = np.full(got.batch.shape, 25)
    # 25 requests with 2000 tokens of context each.
    assert got.decode_s(batch)[0, 0, 2] == pytest.approx(1.16e-3 * (10 + 80 + 25))
    assert got.decode_s(batch)[0, 0, 3] == pytest.approx(1e-3 * (10 + 104 + 25))


def test_each_depth_has_full_graphs_on_an_engine_of_its_own() -> None:
    got = alone_milliseconds(captured(SET, fleet={"max_batch": 128}))
    assert got[25, 0] == pytest.approx(10 + 32)
    # vLLM captures for 80 tokens next, rounded up to whole requests.
    assert got[25, 2] == pytest.approx(10 + 81)
    assert got[64, 7] == pytest.approx(10 + 512)
    assert got[66, 7] == pytest.approx(1.3 * (10 + 528))


def test_an_engine_of_its_own_is_the_same_whatever_is_named() -> None:
    one, other = (alone_milliseconds(captured(graphs)) for graphs in (SET, ALL))
    assert (one == other).all()
    own = milliseconds(captured(TOKENS))
    assert (own[1:, 3] == one[1:, 3]).all()


def test_a_row_of_measured_times_is_read_at_the_padded_batch() -> None:
    rows = {"1": [10.0] * 9, "64": [10.0 + 63 * each for each in range(1, 10)]}
    of = captured(SET, step_time={"table_ms": rows})
    # 25 requests at depth 1 take 56 tokens, as 28 would.
    assert milliseconds(of)[25, 1] == pytest.approx(10 + 2 * 27)
    assert milliseconds(of)[25, 2] == pytest.approx(1.16 * (10 + 3 * (80 / 3 - 1)))


def test_without_graphs_an_engine_of_its_own_is_no_other() -> None:
    got = course(world())
    assert got.ideal is got


def test_the_tuner_knows_which_depths_the_engines_have() -> None:
    def told(of: SimulatedWorld) -> frozenset[int] | None:
        return settings(of, TuningMode.AUTO, window_s=30).named

    assert told(world()) is None
    assert told(captured(SET)) == {0, 1, 3, 7}
    assert told(captured(SET, fleet={"tokens": 5})) == {0, 1, 2, 3, 5, 7}
    assert told(captured(ALL)) == set(range(8))
    assert told(captured(TOKENS)) == {3}
    assert told(captured({"depths": [1, 3], "sizes": "vllm"})) == {1, 3}


def test_depths_that_share_no_grid_have_vllms_sizes_as_the_operator_leaves_them() -> None:
    apart = [0, 1, 3, 4, 6]
    grid, vllm = (milliseconds(captured({"depths": apart, "sizes": s})) for s in ("grid", "vllm"))
    assert (grid == vllm).all()


# Depth 2 is worth most: the third draft is hardly ever accepted, the second nearly always.
SECOND = ({"name": "second", "acceptance": [0.95, 0.95, 0.02, 0.02], "tail": 0},)
CHEAP = {"compute_per_token_us": 200, "draft_token_ms": 1}


def lived(graphs: dict[str, object]) -> WorldCourse:
    of = captured(graphs, step_time=CHEAP, classes=SECOND, traffic={"fluctuation": 0.3})
    return course(of)


def test_no_policy_chooses_a_depth_that_the_engines_do_not_have() -> None:
    given = lived(SET)
    outcomes = campaign(given, POLICIES, {}).outcomes
    assert set(LEARNERS) < set(outcomes)
    for name, outcome in outcomes.items():
        if name != CLAIRVOYANT:
            assert set(np.unique(outcome.depth[given.batch > 0])) <= {0, 1, 3, 7}, name
    assert {"static_1", "static_3"} < set(outcomes)
    assert "static_2" not in outcomes


def test_the_clairvoyant_has_every_depth_on_an_engine_of_its_own() -> None:
    given = lived(SET)
    best = campaign(given, (), {}).outcomes[CLAIRVOYANT]
    assert np.unique(best.depth).tolist() == [2]
    two = np.full(given.batch.shape, 2)
    assert best.tokens.sum() == pytest.approx(outcome_of_depths(given.ideal, two).tokens.sum())
    assert best.tokens.sum() > 1.1 * outcome_of_depths(given, two).tokens.sum()


def test_the_most_that_an_engine_allows_is_the_best_of_its_own_depths() -> None:
    cut = windows(lived(SET))
    chosen = hindsight.most_allowed(cut)
    assert set(np.unique(cut.depth(chosen))) == {3}
    made = outcome_of_depths(cut.course, cut.depth(chosen)).tokens.sum()
    assert made < campaign(cut.course, (), {}).outcomes[CLAIRVOYANT].tokens.sum()


def test_a_lone_depth_is_the_users() -> None:
    given = lived(TOKENS)
    outcomes = campaign(given, POLICIES, {}).outcomes
    others = {name: each for name, each in outcomes.items() if name != CLAIRVOYANT}
    user = outcomes[USER].tokens
    assert all((each.tokens == user).all() for each in others.values())


def test_an_arrangement_of_graphs_leaves_all_draws_as_they_were() -> None:
    one, other = lived(SET), lived(ALL)
    assert (one.batch == other.batch).all()
    assert (one.ideal.rate == other.ideal.rate).all()
    assert not np.array_equal(one.rate, other.rate)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('[fleet.graphs]\ndepths = "some"', "fleet.graphs.depths"),
        ("[fleet.graphs]\ndepths = [0, 1]", "depths must name tokens, 3"),
        ("[fleet.graphs]\ndepths = [0, 3, 8]", "depths must lie between 0 and max_tokens, 7"),
        ('[fleet.graphs]\nsizes = "some"', "fleet.graphs.sizes"),
        ("[fleet.graphs]\n[step_time]\ngraph_sizes = [8]", "either graphs or graph_sizes"),
        ('[fleet.graphs]\n[traffic]\nmode = "open"', "graphs needs closed traffic"),
        (
            '[fleet]\nobjective = "Goodput"\ntpot_milliseconds = 20\n[fleet.graphs]',
            "graphs needs closed traffic and an objective other than Goodput",
        ),
    ],
)
def test_mistakes_are_told_in_sentences(text: str, sentence: str) -> None:
    with pytest.raises(WorldError) as caught:
        parse(text, "mine")
    assert sentence in str(caught.value)


def test_what_is_left_out_is_what_the_operator_does() -> None:
    got = parse("[fleet.graphs]", "mine").fleet
    assert got.depths == (1, 3, 7)
    assert draw(parse("[fleet.graphs]", "mine"), 1, course(world()).clock).ideal is not None
