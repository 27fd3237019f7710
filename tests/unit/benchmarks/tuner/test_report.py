"""From outcomes to figures, and the command as a whole."""

import csv
import json
from io import StringIO
from pathlib import Path
from typing import cast

import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner

from benchmarks.__main__ import app
from benchmarks.tuner.outcome import AlarmRaised
from benchmarks.tuner.results.report import report
from benchmarks.tuner.results.score import AlarmScore, DayScore, RunScore, minutes_to_good
from benchmarks.tuner.results.table import false_alarm_table
from benchmarks.tuner.worlds.files import load
from benchmarks.tuner.worlds.random_worlds import random_world
from fathom.api.conditions import AlarmKind, Reason

CLIFF = AlarmRaised(AlarmKind.DRAFT_MISMATCH, Reason.ACCEPTANCE_CLIFF, 600.0)
DECAY = AlarmRaised(AlarmKind.ACCEPTANCE_DECAY, Reason.OLDER_REPLICAS_ACCEPT_LESS, 600.0)
FITTING, TURNING = False, True
"""Whether the world's drafts stop fitting."""


def run(policy: str, world: str, fractions: list[float], **other: object) -> RunScore:
    values: dict[str, object] = {
        "policy": policy,
        "world": world,
        "seed": 1,
        "days": tuple(DayScore(i, each, 100 * (each - 0.9)) for i, each in enumerate(fractions)),
        "minutes_to_97_percent": 3.0,
        "probes_per_day": 10.0,
        "moves_per_day": 2.0,
        "slo_kept": None,
        "slo_windows": 0,
        "speed_fraction": None,
        "alarms": None,
        "ceiling_fraction": None,
    }
    return RunScore(**{**values, **other})  # type: ignore[arg-type]


def test_every_day_of_every_world_is_one_sample() -> None:
    got = json.loads(
        report(
            [run("live", "a", [0.99, 1.0]), run("live", "b", [0.95]), run("slots", "a", [0.9])]
        ).model_dump_json()
    )
    assert got["live"]["mean_oracle_fraction"] == pytest.approx(0.98)
    assert got["live"]["p5_oracle_fraction"] == pytest.approx(np.percentile([0.99, 1, 0.95], 5))
    assert got["live"]["worst_vs_user_percent"] == pytest.approx(5)
    assert got["live"]["worst_world"] == "b"
    assert got["per_world"]["a"]["live"]["mean_oracle_fraction"] == pytest.approx(0.995)
    assert got["per_world"]["b"].keys() == {"live"}
    assert got["slots"]["mean_oracle_fraction"] == pytest.approx(0.9)


def test_one_run_that_never_gets_there_is_told() -> None:
    never = run("live", "b", [0.9], minutes_to_97_percent=None)
    got = report([run("live", "a", [0.99]), never])
    assert got.__pydantic_extra__["live"].minutes_to_97_percent_max is None
    assert got.per_world["a"]["live"].minutes_to_97_percent_max == 3.0


def test_slo_and_alarms_are_summed_over_runs() -> None:
    got = report(
        [
            run("slots", "a", [0.99], slo_kept=90, slo_windows=100),
            run("slots", "b", [0.99]),
            run("live", "a", [0.99], alarms=AlarmScore((4.0, None), (CLIFF,), 10.0, FITTING)),
            run("live", "b", [0.99], alarms=AlarmScore((6.0,), (), 20.0, FITTING)),
        ]
    )
    assert got.__pydantic_extra__["slots"].slo_kept_fraction == pytest.approx(0.9)
    assert (got.alarms.mismatches, got.alarms.missed) == (3, 1)
    assert got.alarms.mismatch_minutes_max is None
    assert got.alarms.false_per_month == pytest.approx(1.0)


def test_false_alarms_are_told_by_world_and_reason() -> None:
    got = report(
        [
            run("live", "a", [0.99], alarms=AlarmScore((), (CLIFF, DECAY), 10.0, FITTING)),
            run("live", "a", [0.99], alarms=AlarmScore((), (DECAY,), 10.0, FITTING)),
            run("live", "turns", [0.99], alarms=AlarmScore((), (CLIFF,) * 4, 5.0, TURNING)),
            run("live", "calm", [0.99], alarms=AlarmScore((), (), 5.0, FITTING)),
        ]
    )
    assert got.alarms.false_alarms == {
        "a": {"AcceptanceCliff": 1, "OlderReplicasAcceptLess": 2},
        "turns": {"AcceptanceCliff": 4},
    }
    # Other kinds than DraftMismatch are no part of either number.
    assert got.alarms.false_per_month == pytest.approx(30 * 5 / 30)
    assert got.alarms.false_per_month_where_drafts_fit == pytest.approx(30 * 1 / 25)
    assert got.alarms.worlds_where_drafts_stop_fitting == ("turns",)

    said = Console(width=130, file=StringIO())
    said.print(false_alarm_table(got))
    rows = [line.split() for line in cast("StringIO", said.file).getvalue().splitlines()]
    told = [[cell for cell in row if cell != "│"] for row in rows]
    assert ["a", "OlderReplicasAcceptLess", "2", "2"] in told
    assert ["turns", "AcceptanceCliff", "4", "1", "stop", "fitting"] in told


def test_minutes_count_from_when_five_good_minutes_begin() -> None:
    best = np.ones(120)
    own = np.ones(120)
    own[:30] = 0.5
    assert minutes_to_good(best, best, tick_s=10) == 0.0
    # Two of thirty ticks at a half would be a mean of 0.967; one is 0.983.
    assert minutes_to_good(own, best, tick_s=10) == pytest.approx(29 / 6)
    assert minutes_to_good(0.9 * best, best, tick_s=10) is None


def test_a_world_of_ones_own_runs_by_its_path(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('about = "Mine."\n[traffic]\nconcurrency = 3\n')
    figures = tmp_path / "figures.json"
    arguments = ["--seeds", "4-5", "--worlds", str(file), "--policies", "static_5", "--jobs", "1"]
    outputs = ["--json", str(figures), "--plot", str(tmp_path / "figures.png")]
    result = CliRunner().invoke(app, ["tuner", *arguments, *outputs])
    assert result.exit_code == 0, result.output
    got = json.loads(figures.read_text())
    assert got["seeds"] == [4, 5]
    assert got["worlds"] == ["mine"]
    assert 0.5 < got["static_5"]["mean_oracle_fraction"] <= 1.0
    assert got["clairvoyant"]["p5_oracle_fraction"] == 1.0
    assert (tmp_path / "figures.png").stat().st_size > 0


def test_several_worlds_follow_one_flag(tmp_path: Path) -> None:
    options = ["--policies", "static_user", "--seeds", "1", "--jobs", "1"]
    outputs = ["--json", str(tmp_path / "x.json"), "--plot", str(tmp_path / "x.png")]
    result = CliRunner().invoke(app, ["tuner", "--worlds", "steady", "table", *options, *outputs])
    assert result.exit_code == 0, result.output
    assert json.loads((tmp_path / "x.json").read_text())["worlds"] == ["steady", "table"]


def test_worlds_drawn_at_random_run_and_are_written_down(tmp_path: Path) -> None:
    options = ["--policies", "static_user", "--seeds", "1", "--jobs", "1"]
    outputs = ["--json", str(tmp_path / "x.json"), "--plot", str(tmp_path / "x.png")]
    result = CliRunner().invoke(
        app,
        ["tuner", "--random", "3", "--trace", str(tmp_path), *options, *outputs],
    )
    assert result.exit_code == 0, result.output
    assert json.loads((tmp_path / "x.json").read_text())["worlds"] == ["random-3"]
    assert load(str(tmp_path / "random-3.toml")) == random_world(3)


def test_each_window_and_each_decision_of_the_tuner_is_traced(tmp_path: Path) -> None:
    (tmp_path / "hour.toml").write_text(
        """
        fleet = { replicas = 1, window_seconds = 60 }
        traffic = { concurrency = 25, quiet_hours = [[1, 24]] }
        classes = [{ name = "easy", acceptance = [0.95, 0.95, 0.95, 0.95, 0.95] }]
        """
    )
    options = ["--worlds", str(tmp_path / "hour.toml"), "--policies", "live", "--seeds", "1"]
    outputs = ["--jobs", "1", "--trace", str(tmp_path), "--json", str(tmp_path / "x.json")]
    plot = ["--plot", str(tmp_path / "x.png")]
    result = CliRunner().invoke(app, ["tuner", *options, *outputs, *plot])
    assert result.exit_code == 0, result.output
    tables = {
        each: list(csv.DictReader((tmp_path / f"hour-1-live-{each}.csv").read_text().splitlines()))
        for each in ("windows", "decisions")
    }
    assert {"Probe", "Move"} <= {row["action"] for row in tables["decisions"]}
    assert any(row["overrides"] for row in tables["decisions"])
    assert "24:3" in tables["windows"][0]["depths"]
    assert float(tables["windows"][59]["fraction"]) > float(tables["windows"][0]["fraction"])


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--worlds", "atlantis"], "There is no world atlantis"),
        (["--worlds", "steady", "steady"], "must have names of their own"),
        (["--seeds", "3-1"], "--seeds takes a number or a range"),
        (["--random", "x"], "--random takes a number or a range"),
        (["--policies", "magic"], "There is no policy magic"),
        (["--plot", "picture.html"], "--plot takes a file that ends in .png, .svg, .pdf"),
    ],
)
def test_what_cannot_be_asked_for_is_told_in_a_sentence(
    arguments: list[str], sentence: str
) -> None:
    result = CliRunner().invoke(app, ["tuner", *arguments])
    assert result.exit_code == 1
    assert sentence in " ".join(result.output.split())
