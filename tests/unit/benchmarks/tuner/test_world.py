"""What a world's file may say, and what it says when it is wrong."""

from pathlib import Path

import pytest

from benchmarks.tuner.worlds.errors import WorldError
from benchmarks.tuner.worlds.files import load, parse, shipped
from benchmarks.tuner.worlds.world import SimulatedWorld


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[fleet]\nreplica = 3", "fleet.replica: Extra inputs are not permitted"),
        ("[fleet]\ntokens = 8", "tokens must lie between min_tokens and max_tokens"),
        ('[fleet]\nobjective = "Goodput"', "needs tpot_milliseconds"),
        ("[fleet]\nreplicas = 0", "fleet.replicas"),
        ("[traffic]\nconcurrency = nan", "traffic.concurrency"),
        ('[[classes]]\nname = "a"', "class a needs either acceptance or length"),
        ('[[classes]]\nname = "a"\nlength = [1.8, 1.7]', "must rise with depth"),
        ('[[events]]\nkind = "pod_restart"\nat_minutes = 5\npod = 4', "pods count from 0 to 3"),
        ('[[events]]\nkind = "storm"\nat_minutes = 5', "'storm'"),
        (
            '[[events]]\nkind = "class_shift"\nat_minutes = 5\nshares = { b = 1 }',
            "classes among chat",
        ),
        ("[step_time.moe]\nexperts = 4\ntop = 8", "top must not exceed experts"),
        ("[step_time.table_ms]\nmany = [1.0]", "table_ms maps a batch"),
        ("[step_time.table_ms]\n1 = [1.0]\n8 = [1.0, 2.0]", "must have the same length"),
        ("replicas 3", "not TOML"),
    ],
)
def test_mistakes_are_told_in_sentences(text: str, sentence: str) -> None:
    with pytest.raises(WorldError) as caught:
        parse(text, "mine")
    assert sentence in str(caught.value)
    assert "mine" in str(caught.value)


def test_an_empty_file_is_a_world() -> None:
    assert parse("", "empty") == SimulatedWorld(name="empty")


def test_every_shipped_world_can_be_read_and_says_what_it_is_about() -> None:
    assert len(shipped()) >= 14
    assert all(load(name).about for name in shipped())


def test_an_unknown_world_lists_the_known_ones() -> None:
    with pytest.raises(WorldError, match="steady"):
        load("no-such-world")


def test_a_world_is_named_after_its_file(tmp_path: Path) -> None:
    file = tmp_path / "lunch-break.toml"
    file.write_text("[traffic]\nconcurrency = 3")
    assert load(str(file)).name == "lunch-break"


POEMS = (
    '[[classes]]\nname = "code"\nacceptance = [0.9]\n[[classes]]\nname = "poems"\nlength = [1.1]\n'
)


@pytest.mark.parametrize(
    ("text", "stop"),
    [
        (POEMS, False),
        (POEMS + '[[events]]\nkind = "class_cycle"\nat_minutes = 0\nperiod_minutes = 60', True),
        (POEMS + '[[events]]\nkind = "class_shift"\nat_minutes = 0\nshares = { poems = 1 }', True),
        (POEMS + '[[events]]\nkind = "class_shift"\nat_minutes = 0\nshares = { code = 1 }', False),
        (POEMS.replace("0.9", "0.1"), False),
    ],
)
def test_drafts_stop_fitting_where_traffic_turns_to_what_they_were_not_made_for(
    text: str,
    stop: bool,  # noqa: FBT001
) -> None:
    assert parse(text, "mine").drafts_stop_fitting is stop


def test_of_the_shipped_worlds_only_one_turns_to_what_drafts_do_not_fit() -> None:
    turning = [name for name in shipped() if load(name).drafts_stop_fitting]
    assert turning == ["draftless-hours"]
