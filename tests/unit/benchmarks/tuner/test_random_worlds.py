"""Worlds drawn at random: always the same ones, each another, and all of the format's width."""

from pathlib import Path
from typing import get_args

from pydantic import BaseModel

from benchmarks.tuner.results.trace import write_world
from benchmarks.tuner.worlds.events import Event
from benchmarks.tuner.worlds.files import load
from benchmarks.tuner.worlds.random_worlds import random_world

MANY = range(1, 201)
EVENTS: tuple[type[BaseModel], ...] = get_args(get_args(Event)[0])


def test_a_number_is_always_the_same_world() -> None:
    assert random_world(7) == random_world(7)
    assert random_world(7) != random_world(8)


def test_every_kind_of_event_is_drawn() -> None:
    drawn = {type(event) for number in MANY for event in random_world(number).events}
    assert drawn == set(EVENTS)


def test_most_of_the_format_is_drawn() -> None:
    worlds = [random_world(number) for number in MANY]
    assert {each.traffic.mode for each in worlds} == {"closed", "open"}
    assert {each.fleet.replicas for each in worlds} >= {1, 16}
    assert {each.fleet.min_tokens for each in worlds} == {0, 1}
    assert any(each.step_time.moe for each in worlds)
    assert any(each.step_time.graph_sizes for each in worlds)


def test_any_of_them_is_written_as_a_file_that_reads_the_same(tmp_path: Path) -> None:
    for number in MANY:
        world = random_world(number)
        write_world(tmp_path, world)
        assert load(str(tmp_path / f"{world.name}.toml")) == world
