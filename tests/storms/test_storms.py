"""Histories of faults: whatever happens, no invariant breaks, and in the end all is well.

`python -m storms 17` shows what happened in one; docs/reliability.md says what can happen.
"""

import subprocess
import sys
from pathlib import Path

from storms.history import History, drawn
from storms.shrink import shrunk

HERE = Path(__file__).parent
FOUND = HERE / "found"


def _storms(*arguments: str) -> subprocess.CompletedProcess[str]:
    """In a process of its own, where a seed is one history."""
    return subprocess.run(
        [sys.executable, "-m", "storms", *arguments],
        cwd=HERE.parent,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )


def test_a_hundred_histories_break_nothing() -> None:
    """`make test-storms` runs thousands, and the bites have 200 to be found in."""
    ran = _storms("1-100")
    print(ran.stdout)
    assert ran.returncode == 0, ran.stdout
    assert "100 histories, 0 broken" in ran.stdout


def test_whatever_their_host_does_a_tuner_does_no_harm() -> None:
    """`make test-storms` runs thousands."""
    ran = _storms("hosts 1-30")
    print(ran.stdout)
    assert ran.returncode == 0, ran.stdout
    assert "30 histories, 0 broken" in ran.stdout


def test_an_operator_that_dies_at_any_of_its_writes_breaks_nothing() -> None:
    ran = _storms("crashes")
    print(ran.stdout)
    assert ran.returncode == 0, ran.stdout


def test_what_once_found_a_fault_breaks_nothing() -> None:
    ran = _storms(str(FOUND))
    print(ran.stdout)
    assert ran.returncode == 0, ran.stdout
    assert f"{len(list(FOUND.glob('*.json')))} histories, 0 broken" in ran.stdout


def test_a_seed_is_one_history_to_the_byte() -> None:
    first, second = _storms("17"), _storms("17")
    assert len(first.stdout) > 1000
    assert first.stdout == second.stdout


def test_a_history_survives_being_written_down() -> None:
    history = drawn(17)
    assert History.from_json(history.to_json()) == history


def test_the_shortest_history_that_fails_holds_only_what_it_takes() -> None:
    history = next(each for each in map(drawn, range(1, 100)) if len(each.deeds) > 6)
    guilty = (history.deeds[1], history.deeds[5])

    def broken(each: History) -> str:
        return "it broke" if all(deed in each.deeds for deed in guilty) else ""

    assert shrunk(history, broken, lambda _: None).deeds == guilty
