"""`fathom report` from a recording: what was recorded, and what would have been decided."""

import json
import re
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from statistics import fmean

import pytest
import yaml
from typer.testing import CliRunner

from fathom.api.choices import TuningMode
from fathom.api.conditions import AlarmKind, Reason
from fathom.cli.main import app
from fathom.cluster.kinds import ObjectKey
from fathom.measurement.counters import PodCounters
from fathom.page.history import MomentKind
from fathom.page.resource_view import ResourceView
from fathom.replay.page import ReplayPage
from fathom.replay.replay import Replay, ReplayResult
from fathom.tuning.alarms.alarm import Alarm
from manifest_samples import manifest
from unit.replay.recorded import record, write
from unit.tuning.plant import EASY, SETTINGS, Fleet

KEY = ObjectKey("llm", "kimi")
DAY_S = 24 * 3600.0


def shown(looks: list[PodCounters]) -> tuple[ResourceView, ReplayResult]:
    page = ReplayPage(SETTINGS)
    replay = Replay(SETTINGS, page.saw)
    for look in looks:
        replay.take(look)
    result = replay.result()
    assert result is not None
    return page.view(KEY, result), result


def by_hand(*depths: int) -> list[PodCounters]:
    """Two pods whose depth somebody changed every two minutes."""
    fleet = Fleet(settings=replace(SETTINGS, mode=TuningMode.ADVISE), acceptance=EASY)
    looks = []
    for depth in depths:
        fleet.change(tokens=depth)
        looks += record(fleet, 120)
    return looks


def later(looks: list[PodCounters], seconds: float) -> list[PodCounters]:
    return [replace(each, at_s=each.at_s + seconds) for each in looks]


@pytest.fixture(scope="module")
def looks() -> list[PodCounters]:
    return by_hand(3, 5, 7, 3)


@pytest.fixture(scope="module")
def page(looks: list[PodCounters]) -> tuple[ResourceView, ReplayResult]:
    return shown(looks)


def test_lines_are_what_was_recorded_and_not_what_would_have_been_decided(
    page: tuple[ResourceView, ReplayResult],
) -> None:
    view, result = page

    assert ObjectKey(view.namespace, view.name) == KEY
    assert (view.since, view.at) == ("2023-11-14T22:13:30Z", "2023-11-14T22:21:20Z")
    assert view.charts.at_s[0] - round(result.recorded.from_s) <= SETTINGS.window_seconds
    assert view.charts.at_s[-1] == round(result.recorded.to_s)
    speeds = [each or 0.0 for each in view.charts.tokens_per_second]
    (busy,) = [line for line in view.charts.depths if line.batches == "3-5"]
    assert [depth for depth, _ in groupby(busy.depths)] == [3, 5, 7, 3]
    mean = {
        depth: fmean(speed for speed, at in zip(speeds, busy.depths, strict=True) if at == depth)
        for depth in (3, 5, 7)
    }
    assert mean[3] < mean[5] < mean[7]
    groups = {group.title: group.facts for group in view.groups}
    told = (*(each for found in groups.values() for each in found), *view.judgements)
    facts = {each.name: each.value for each in told}
    assert facts["Recorded"].startswith("96 scrapes of 2 pods within 0:07:50")
    assert float(facts["Tokens per second"].replace(",", "")) == pytest.approx(mean[3], rel=0.1)
    assert [*groups] == ["At the end", f"Measured in the 10 s until {view.at}"]
    assert facts["Depth"] == "3"


def test_decisions_and_gains_are_those_of_the_replay(
    page: tuple[ResourceView, ReplayResult],
) -> None:
    view, result = page

    told = [each for each in view.moments if each.kind is MomentKind.DECISION]
    assert [each.at_s for each in told] == [each.at_s for each in reversed(result.decisions)]
    move = result.decisions[-1]
    assert (told[0].what, told[0].reason) == ("Move 3 → 7 at 1-10, 3 beyond", "Moved")
    assert told[0].message == f"{move.message} The same 12 times, until 2023-11-14T22:21:20Z."
    gained = {each.name: each.value for each in view.judgements}
    assert result.over_recorded is not None
    assert gained["What it would have decided, over what was recorded"].startswith(
        f"{result.over_recorded.gain:+.1%} (95 %: {result.over_recorded.low:+.1%} to "
    )
    assert view.explanation == result.explanation
    (row,) = [each for each in view.heat if each.batches == "4"]
    assert [cell.depth for cell in row.cells if cell.in_force] == [3]


def test_an_alarm_that_stands_at_the_end_is_shown_as_one(looks: list[PodCounters]) -> None:
    page = ReplayPage(SETTINGS)
    _, result = shown(looks[:8])
    stands = Alarm(
        kind=AlarmKind.DRAFT_MISMATCH,
        reason=Reason.ACCEPTANCE_CLIFF,
        message="It fell.",
        recommendation="Look.",
        since_s=1700000100.0,
    )
    over = replace(stands, since_s=1700000020.0)
    explanation = replace(result.explanation, alarms=(stands,))
    view = page.view(KEY, replace(result, alarms=(over, stands), explanation=explanation))

    (alarm,) = view.notices
    assert alarm.code == "DraftMismatch/AcceptanceCliff"
    assert alarm.since == "2023-11-14T22:15:00Z"
    assert (alarm.cause, alarm.advice) == ("It fell.", "Look.")
    told = [each for each in view.moments if each.kind is MomentKind.ALARM]
    assert [(each.at_s, each.bad) for each in told] == [(1700000100.0, True), (1700000020.0, True)]


def test_a_line_breaks_where_there_was_no_look(looks: list[PodCounters]) -> None:
    again = later(by_hand(3), 3600)
    view, result = shown([*looks, *again])

    (gap,) = result.recorded.gaps
    within = [
        speed
        for at, speed in zip(view.charts.at_s, view.charts.tokens_per_second, strict=True)
        if gap.from_s < at <= gap.to_s
    ]
    assert within[-1] is None
    told = {each.name: each.value for each in view.judgements}
    assert told["Without any scrape"] == "from 2023-11-14T22:21:20Z to 2023-11-14T23:13:30Z"


def test_what_is_longer_than_a_day_is_shown_from_its_beginning(looks: list[PodCounters]) -> None:
    view, result = shown([*looks, *later(by_hand(3), 3 * DAY_S)])

    assert view.charts.at_s[0] < result.recorded.from_s + 60
    assert view.charts.at_s[-1] > result.recorded.from_s + 3 * DAY_S


def test_engines_without_the_plugin_leave_a_page_that_says_what_is_missing(
    looks: list[PodCounters],
) -> None:
    bare = [replace(each, live_depth=False, cells={}, drafts={}) for each in looks]
    view, _ = shown(bare)

    told = {each.name: each.value for each in view.judgements}
    assert told["Without the plugin"].startswith("The engines show vLLM's own counters only")
    assert {*told} == {"Recorded", "Without the plugin"}
    assert (view.charts.at_s, view.heat) == ((), ())


# The commands.


def fathom(*arguments: object) -> tuple[int, str, str]:
    """With no cluster to ask."""
    result = CliRunner().invoke(
        app, [*map(str, arguments)], env={"KUBECONFIG": "/nonexistent", "COLUMNS": "160"}
    )
    return result.exit_code, result.stdout, result.stderr


@pytest.fixture
def wishes(tmp_path: Path) -> Path:
    wished = {
        "speculation.tokens": 2,
        "speculation.tuning.windowSeconds": 10,
        "engine.args": ["--max-num-seqs", "16", "--enforce-eager"],
    }
    file = tmp_path / "sd.yaml"
    file.write_text(yaml.safe_dump(manifest(wished)), encoding="utf-8")
    return file


def test_a_report_is_written_from_recordings_without_a_cluster(
    tmp_path: Path, looks: list[PodCounters], wishes: Path
) -> None:
    whole, file = write(tmp_path / "day.jsonl.gz", looks), tmp_path / "kimi.html"
    parts: list[object] = []
    for pod in ("pod-0", "pod-1"):
        own = [each for each in looks if each.pod == pod]
        parts += ["--recording", write(tmp_path / f"{pod}.jsonl", own)]
    code, out, err = fathom(
        *("report", "kimi", "-n", "llm", "--recording", whole, "-f", wishes, "-o", file)
    )
    page = file.read_text(encoding="utf-8")
    fathom("report", "kimi", "-n", "llm", *parts, "-f", wishes, "-o", file)

    assert (code, out, err) == (0, f"Written: {file}\n", "")
    assert "<title>llm/kimi – Fathom</title>" in page
    assert "Made from a recording" in page
    assert "tokens 2 within" in page
    data = json.loads(re.findall(r'id="history">(.*?)</script>', page)[0])
    assert len(data["at_s"]) > 30
    assert '<li id="moment-1" class="Decision">' in page
    assert file.read_text(encoding="utf-8") == page


def test_without_wishes_and_namespace_the_api_s_defaults_count_and_the_name_stands_alone(
    tmp_path: Path, looks: list[PodCounters], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, _ = fathom("report", "kimi", "--recording", write(tmp_path / "a.jsonl", looks))

    assert (code, out) == (0, "Written: kimi.html\n")
    page = (tmp_path / "kimi.html").read_text(encoding="utf-8")
    assert "<title>kimi – Fathom</title>" in page
    assert "windows of 30 s" in page


def test_a_replay_writes_its_page_too(tmp_path: Path, looks: list[PodCounters]) -> None:
    file = tmp_path / "kimi.html"
    code, out, err = fathom(
        *("replay", write(tmp_path / "a.jsonl", looks), "--tokens", 4, "--page", file)
    )

    assert (code, err) == (0, "")
    assert out.endswith(f"Written: {file}\n")
    page = file.read_text(encoding="utf-8")
    assert "<title>kimi – Fathom</title>" in page
    assert "tokens 4 within" in page


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["report", "a", "-f", "SD"], "-f is for --recording only"),
        (["report", "a", "--recording", "/none"], "/none: cannot be read: No such file"),
        (["report", "a", "--recording", "EMPTY"], "There is nothing to replay: there is no scrape"),
        (["report", "a", "--recording", "EMPTY", "-f", "EMPTY"], "holds 0 SpeculativeDeployments"),
        (["report", "a", "--recording", "A", "-o", "/none/a.html"], "/none/a.html: cannot be writ"),
    ],
)
def test_what_cannot_be_reported_is_told_in_a_sentence(
    tmp_path: Path, looks: list[PodCounters], arguments: list[str], sentence: str
) -> None:
    (tmp_path / "empty").touch()
    files = {"EMPTY": tmp_path / "empty", "A": write(tmp_path / "a.jsonl", looks[:8])}

    code, out, err = fathom(*[files.get(each, each) for each in arguments])

    assert (code, out) == (2, "")
    assert sentence in err
