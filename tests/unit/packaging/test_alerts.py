"""What each alert of the chart has to have, and what each dashboard."""

import re
from collections import Counter
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from fathom.api.conditions import AlarmKind, ConditionType, Reason
from fathom.tuning.alarms.table import ALARMS
from support.monitoring import DASHBOARDS, alerts, dashboard, panels
from support.pages import DOCS, RUNBOOKS

ALERTS = alerts()
VALUES = {
    "alarm": {*AlarmKind},
    "type": {*ConditionType, *AlarmKind},
    "status": {"True", "False", "Unknown"},
    "reason": {*Reason},
}
"""What labels of the operator's metrics may say."""
PARTS = ["What it means", "Diagnose", "Do", "When to ignore it"]
COLUMNS = 24
"""Columns of Grafana's grid."""


@pytest.mark.parametrize("kind", sorted({row.kind for row in ALARMS}))
def test_each_alarm_has_its_alert(kind: AlarmKind) -> None:
    expression = f'max by (namespace, name) (fathom_alarm{{alarm="{kind}"}}) == 1'
    assert ALERTS[f"Fathom{kind}"]["expr"] == expression


@pytest.mark.parametrize("name", ALERTS)
def test_each_alert_says_how_bad_what_and_where(name: str) -> None:
    alert = ALERTS[name]
    assert alert["labels"]["severity"] in {"info", "warning", "critical"}
    assert alert["annotations"].keys() == {"summary", "description"}
    assert all(text.endswith(".") for text in alert["annotations"].values())
    for label, values in re.findall(r'(\w+)(?:=|!=|=~|!~)"([^"]*)"', alert["expr"]):
        assert {*values.split("|")} <= VALUES[label]


def test_each_alert_has_a_page_for_those_whom_it_wakes() -> None:
    assert {page.stem for page in RUNBOOKS} == ALERTS.keys()
    for page in RUNBOOKS:
        text = page.read_text(encoding="utf-8")
        assert text.startswith(f"# {page.stem}\n")
        assert re.findall(r"^## (.+)$", text, re.MULTILINE) == PARTS, page.name


def test_each_alert_stands_on_the_page_of_metrics() -> None:
    page = (DOCS / "metrics.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| \[(\w+)\]\(runbooks/\1\.md\) \| (\w+) \|", page, re.MULTILINE)
    assert dict(rows) == {name: each["labels"]["severity"] for name, each in ALERTS.items()}


def test_a_dashboard_is_addressed_by_its_file() -> None:
    assert [dashboard(path)["uid"] for path in DASHBOARDS] == [
        f"fathom-{path.stem}" for path in DASHBOARDS
    ]


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.name)
def test_panels_have_a_place_of_their_own(path: Path) -> None:
    shown = dashboard(path)["panels"]
    assert max(Counter(panel["id"] for panel in shown).values()) == 1
    assert all(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= COLUMNS for panel in shown)
    for one, other in combinations(shown, 2):
        assert not overlap(one["gridPos"], other["gridPos"]), (one["title"], other["title"])


def overlap(one: dict[str, int], other: dict[str, int]) -> bool:
    return all(
        one[start] < other[start] + other[length] and other[start] < one[start] + one[length]
        for start, length in (("x", "w"), ("y", "h"))
    )


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.name)
def test_panels_say_what_they_show_of_the_chosen_prometheus(path: Path) -> None:
    for panel in panels(path):
        assert panel["description"].endswith("."), panel["title"]
        asked: list[dict[str, Any]] = [panel, *panel["targets"]]
        assert {each["datasource"]["uid"] for each in asked} == {"${datasource}"}
