"""`docs/worlds.md` is all that someone who writes a world has read."""

import re
from pathlib import Path
from typing import get_args

import pytest
from pydantic import BaseModel

from benchmarks.tuner.results.report import AlarmSummary, PolicySummary
from benchmarks.tuner.simulate import POLICIES
from benchmarks.tuner.worlds.events import Event
from benchmarks.tuner.worlds.files import parse
from benchmarks.tuner.worlds.parts import (
    ClassPart,
    ExpertsPart,
    FleetPart,
    GraphsPart,
    NoisePart,
    StepTimePart,
    TrafficPart,
)

PAGE = (Path(__file__).parents[4] / "docs" / "worlds.md").read_text()
EVENTS: tuple[type[BaseModel], ...] = get_args(get_args(Event)[0])


@pytest.mark.parametrize(
    "part",
    [
        *(FleetPart, GraphsPart, StepTimePart, ExpertsPart, TrafficPart, ClassPart, NoisePart),
        *EVENTS,
        *(PolicySummary, AlarmSummary),
    ],
)
def test_every_field_is_explained(part: type[BaseModel]) -> None:
    assert [name for name in part.model_fields if f"`{name}`" not in PAGE] == []


def test_every_kind_of_event_is_explained() -> None:
    kinds = {kind for event in EVENTS for kind in get_args(event.model_fields["kind"].annotation)}
    assert sorted(kind for kind in kinds if f"`{kind}`" not in PAGE) == []


def test_every_policy_is_explained() -> None:
    others = [name for name in POLICIES if not re.fullmatch(r"static_\d", name)]
    assert [name for name in others if f"`{name}`" not in PAGE] == []


def test_the_example_is_a_world() -> None:
    (example,) = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    assert [each.name for each in parse(example, "example").classes] == ["coding", "chat"]


def test_defaults_are_what_the_page_says() -> None:
    rows = re.findall(r"^\| `(\w+)` \| ([\d.,]+) \|", PAGE, re.MULTILINE)
    defaults = {
        name: field.default
        for part in (FleetPart, GraphsPart, StepTimePart, TrafficPart, ClassPart, NoisePart)
        for name, field in part.model_fields.items()
    }
    assert len(rows) > 20
    assert {name: float(said.replace(",", "")) for name, said in rows} == {
        name: defaults[name] for name, _ in rows
    }
