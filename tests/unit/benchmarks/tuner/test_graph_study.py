"""Every arrangement of CUDA graphs in the same worlds, and what each is worth there."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from benchmarks.__main__ import app
from benchmarks.tuner.course.course import CourseClock
from benchmarks.tuner.course.drawing import draw
from benchmarks.tuner.results.graph_study import (
    ARRANGEMENTS,
    GraphReport,
    GraphRun,
    graph_report,
)
from benchmarks.tuner.worlds.files import load
from benchmarks.tuner.worlds.random_worlds import random_world
from benchmarks.tuner.worlds.world import SimulatedWorld
from fathom.api.choices import Objective

ALONE = "3 only, a static engine"
OURS = "0, 1, 3, 7 on 8"


def test_what_the_operator_does_is_one_of_them() -> None:
    named = {each.name: each.of(load("steady")).fleet.named for each in ARRANGEMENTS}
    assert named[ALONE] == (3,)
    assert named[OURS] == (0, 1, 3, 7)
    assert tuple(range(8)) in named.values()
    assert (0, 1, 2, 3, 5, 7) in named.values()


@pytest.mark.parametrize(
    "name", ["queueing", "goodput-slo", "graph-cliffs", "table", "large-guess"]
)
def test_any_shipped_world_can_be_arranged(name: str) -> None:
    for each in ARRANGEMENTS:
        got = each.of(load(name))
        assert SimulatedWorld.model_validate(got.model_dump()) == got
        assert got.name == name
        assert (got.fleet.tokens, got.fleet.max_tokens) == (3, 7)
        assert got.fleet.objective is not Objective.GOODPUT


def test_any_random_world_can_be_arranged() -> None:
    for number in range(1, 60):
        for each in ARRANGEMENTS:
            got = each.of(random_world(number))
            assert SimulatedWorld.model_validate(got.model_dump()) == got


def test_all_of_them_live_through_the_same_course() -> None:
    of = random_world(4)
    courses = [draw(each.of(of), 1, CourseClock(300.0, 24, 2)) for each in ARRANGEMENTS]
    first = courses[0]
    assert all((each.batch == first.batch).all() for each in courses)
    assert all((each.ideal.rate == first.ideal.rate).all() for each in courses)
    assert not all((each.rate == first.rate).all() for each in courses)


def shares(arrangement: str, world: str, tuned: float) -> GraphRun:
    return GraphRun(
        arrangement=arrangement, world=world, seed=1, allowed=0.99, tuned=tuned, at_tokens=1.0
    )


def test_a_row_is_the_mean_of_its_runs_and_the_worst_of_them() -> None:
    got = graph_report(
        [shares("a", "calm", 0.98), shares("b", "calm", 0.5), shares("a", "wild", 0.9)]
    )
    assert [row.arrangement for row in got.rows] == ["a", "b"]
    assert got.rows[0].tuned.mean == pytest.approx(0.94)
    assert got.rows[0].tuned.worst == 0.9
    assert got.rows[0].worst_world == "wild"


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> GraphReport:
    """A world in which depth 2 is worth most, and an hour is enough to see it."""
    folder = tmp_path_factory.mktemp("study")
    (folder / "seconds.toml").write_text(
        """
        fleet = { replicas = 1, max_batch = 64, window_seconds = 600 }
        step_time = { spread = 0, compute_per_token_us = 200 }
        traffic = { concurrency = 25, quiet_hours = [[1, 24]] }
        classes = [{ name = "second", acceptance = [0.95, 0.95, 0.02] }]
        """
    )
    arguments = ["--graphs", "--seeds", "1", "--worlds", str(folder / "seconds.toml")]
    outputs = ["--jobs", "1", "--json", str(folder / "shares.json")]
    result = CliRunner().invoke(app, ["tuner", *arguments, *outputs])
    assert result.exit_code == 0, result.output
    assert all(each.name in result.output for each in ARRANGEMENTS)
    return GraphReport.model_validate(json.loads((folder / "shares.json").read_text()))


def test_a_static_engine_is_its_own_measure_at_the_users_depth(study: GraphReport) -> None:
    rows = {row.arrangement: row for row in study.rows}
    assert rows[ALONE].at_tokens.worst == 1.0
    assert rows[ALONE].tuned.mean == pytest.approx(rows[ALONE].allowed.mean)
    assert rows[OURS].at_tokens.worst > 0.98


def test_a_depth_that_is_missing_is_missed(study: GraphReport) -> None:
    rows = {row.arrangement: row for row in study.rows}
    assert rows[OURS].allowed.mean < 0.99 < rows["0, 1, 2, 3, 5, 7 on 24"].allowed.mean


def test_no_arrangement_makes_much_more_than_all_depths_on_engines_of_their_own(
    study: GraphReport,
) -> None:
    """Sizes on a grid of 24 fit some batches better than those that vLLM chooses by itself."""
    assert all(run.tuned <= run.allowed * (1 + 1e-9) < 1.01 for run in study.runs)


@pytest.mark.parametrize("option", [["--policies", "live"], ["--trace", "x"]])
def test_what_means_nothing_there_is_told(option: list[str], tmp_path: Path) -> None:
    given = [str(tmp_path / each) if each == "x" else each for each in option]
    result = CliRunner().invoke(app, ["tuner", "--graphs", *given])
    assert result.exit_code == 1
    assert "--graphs takes neither --policies nor --trace" in " ".join(result.output.split())
