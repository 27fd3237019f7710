"""What `make try-engine` says of a release."""

from dataclasses import replace
from pathlib import Path

import pytest

from fathom.engine.capability_table import TABLE
from local_cluster.engine.releases import NEWEST_KNOWN, asked_releases, known_as
from maintenance.try_engine import (
    CHECKS,
    CheckOutcome,
    Result,
    State,
    column,
    result_of,
    row,
    why_not_run,
)

REPOSITORY = Path(__file__).parents[3]
COMMANDS, PREFLIGHT, GRAPHS, RUNNING = CHECKS[0], CHECKS[3], CHECKS[4], CHECKS[-1]


def test_releases_are_those_that_are_named_or_those_of_make_test() -> None:
    assert asked_releases({}) == ("0.28.0", "0.32.0")
    assert asked_releases({"FATHOM_ENGINE_VERSIONS": "0.33.0 0.34.0 0.33.0"}) == (
        "0.33.0",
        "0.34.0",
    )


@pytest.mark.parametrize(
    ("release", "known"), [("0.28.0", "0.28.0"), ("0.34.0", NEWEST_KNOWN), ("1.0.0", NEWEST_KNOWN)]
)
def test_a_release_beyond_the_table_is_held_against_its_newest(release: str, known: str) -> None:
    assert str(known_as(release)) == known


def test_each_check_has_its_tests() -> None:
    assert all((REPOSITORY / check.path).is_file() for check in CHECKS)


def test_a_check_says_why_it_is_not_run() -> None:
    not_live = "depth is live in <0.34,>=0.32.0, and not here"
    assert why_not_run(GRAPHS, "0.30.0", serves=True) == not_live
    assert "<0.33,>=0.24.0 alone" in why_not_run(PREFLIGHT, "0.34.0", serves=True)
    assert "its Python files run no model" in why_not_run(RUNNING, "0.33.0", serves=False)
    assert why_not_run(GRAPHS, "0.34.0", serves=False) == ""
    assert why_not_run(COMMANDS, "0.23.0", serves=False) == ""
    assert result_of(GRAPHS, (), not_live) == Result(GRAPHS, State.NOT_RUN, not_live)


def test_a_check_fails_with_each_cause_once() -> None:
    good = CheckOutcome(GRAPHS.path)
    bad = CheckOutcome(GRAPHS.path, fault="no such module")
    other = CheckOutcome(COMMANDS.path, fault="another check's")

    assert result_of(GRAPHS, [good, good, other], "") == Result(GRAPHS, State.PASSED, "2 tests")
    failed = result_of(GRAPHS, [bad, good, bad], "")
    assert failed == Result(GRAPHS, State.FAILED, "2 of 3 tests: no such module")


def test_a_check_whose_tests_did_not_come_about_failed() -> None:
    assert result_of(GRAPHS, [], "").state is State.FAILED


def test_the_row_counts_what_the_tests_found() -> None:
    found = [
        {"command": "accepted"},
        {"command": "accepted"},
        {"command": "parsed"},
        {"row": "has"},
        {"row": "lacks"},
        {"row": "lacks"},
        {"schedule": "dropped with data parallelism"},
    ]
    outcomes = [CheckOutcome(COMMANDS.path, properties=each) for each in found]
    results = [
        Result(COMMANDS, State.PASSED, ""),
        Result(GRAPHS, State.FAILED, ""),
        Result(RUNNING, State.NOT_RUN, ""),
    ]

    assert row("0.33.0", results, outcomes) == (
        "| 0.33.0 | 2 accepted, 1 parsed | 1, 2; the schedule dropped with data parallelism "
        "| ✔ | ✘ | – |"
    )
    for other in ("refused by both", "newer than the release"):
        outcome = replace(outcomes[0], properties={"command": other})
        assert row("0.23.0", results[:1], [outcome]) == f"| 0.23.0 | 1 {other} | 0, 0 | ✔ |"


def test_the_column_has_a_cell_for_each_row_of_the_table() -> None:
    cells = column("0.34.0")

    assert cells[0] == "|  | 0.34.0 |"
    assert len(cells) == len(TABLE) + 1
    assert "| live depth | ✔ |" in cells
    assert "| live depth with adaptive verification | ✔ |" in cells
