"""Which mutants are drawn, which tests they meet, and what is listed as equivalent."""

from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from mutants.modules import MODULES
from mutants.running import LOADED_EARLY
from mutants.sampling import Candidate, Change, drawn
from mutants.selection import MOST_S, Recorded
from mutants.session import Outcome
from mutants.survivors import Equivalent, listed, stale

ROOT = Path(__file__).parents[3]

SOURCE = """\
LIMIT = 3


def limited(value):
    if value > LIMIT:
        return LIMIT
    return value


class Sum:
    total: int = 0

    def doubled(self):
        return (
            2 * self.total
        )


UNUSED = 1
"""
RECORDED = Recorded(
    {"slow": 2.0, "quick": 0.1, "other": 0.5},
    {"m.py": {5: {"slow", "quick"}, 6: {"slow"}, 7: {"quick"}, 15: {"other"}}},
)


def at(line: int, column: int = 0, key: str = "k") -> Candidate:
    return Candidate("m.py", "operator", 0, (line, column), (line, column + 1), key)


@pytest.mark.parametrize(
    ("line", "tests"),
    [
        (5, ["quick", "slow"]),  # quick ones first
        (6, ["slow"]),
        (15, ["other"]),  # any line of a statement
        (1, ["quick", "slow"]),  # what runs on import: whoever executes a line that names it
        (11, ["other"]),
        (13, ["other"]),  # a function's head, and its decorators: whoever executes its body
        (19, ["quick", "other", "slow"]),  # a name that no executed line has: every test
    ],
)
def test_a_mutant_meets_the_tests_that_execute_it(line: int, tests: list[str]) -> None:
    assert RECORDED.tests_of(at(line), {"m.py": SOURCE}) == tests


def test_of_many_slow_tests_it_meets_the_first() -> None:
    seconds = {f"test {number}": MOST_S / 3 + number for number in range(5)}
    recorded = Recorded(seconds, {"m.py": {6: set(seconds)}})
    assert recorded.tests_of(at(6), {"m.py": SOURCE}) == ["test 0", "test 1", "test 2"]


def test_a_test_of_many_cases_does_not_keep_others_waiting() -> None:
    seconds = {"a[1]": 0.1, "a[2]": 0.2, "a[3]": 0.3, "b": 1.0}
    recorded = Recorded(seconds, {"m.py": {6: set(seconds)}})
    assert recorded.tests_of(at(6), {"m.py": SOURCE}) == ["a[1]", "b", "a[2]", "a[3]"]


def test_all_cases_of_a_quick_test_come_before_slow_ones() -> None:
    seconds = {"a[1]": 0.01, "a[2]": 0.02, "b": 1.0}
    recorded = Recorded(seconds, {"m.py": {6: set(seconds)}})
    assert recorded.tests_of(at(6), {"m.py": SOURCE}) == ["a[1]", "a[2]", "b"]


def test_a_files_own_tests_come_before_quicker_ones() -> None:
    seconds = {"tests/test_n.py::a": 0.1, "tests/test_m.py::b": 1.0}
    recorded = Recorded(seconds, {"m.py": {6: set(seconds)}})
    assert recorded.tests_of(at(6), {"m.py": SOURCE})[0] == "tests/test_m.py::b"


def test_what_no_test_executes_meets_all_since_one_may_do_so_in_a_process_of_its_own() -> None:
    recorded = Recorded({"slow": 2.0, "quick": 0.1}, {})
    assert recorded.tests_of(at(6), {"m.py": SOURCE}) == ["quick", "slow"]


def test_every_place_is_drawn_once_before_any_is_drawn_twice() -> None:
    alike = [at(line, key=f"{line}{operator}") for line in (1, 2, 3) for operator in "+-*"]
    order = drawn(alike, seed=1)
    assert {each.start[0] for each in order[:3]} == {1, 2, 3}
    assert drawn(reversed(alike), seed=1) == order
    assert drawn(alike, seed=2) != order


def test_an_edit_leaves_the_order_of_the_rest_as_it_is() -> None:
    before = [at(line, key=f"line {line}") for line in range(50)]
    order = drawn(before, seed=1)
    moved = [at(line + 7, key=f"line {line}") for line in range(50) if line != 20]
    assert [each.key for each in drawn(moved, seed=1)] == [
        each.key for each in order if each.key != "line 20"
    ]


def test_a_killed_mutant_is_run_again_only_if_its_file_changed() -> None:
    killed = Outcome("k", source="a", tests="t", killed=True, by="", seconds=1)
    assert killed.holds("a", "other tests")
    assert not killed.holds("b", "t")
    survived = Outcome("k", source="a", tests="t", killed=False, by="", seconds=1)
    assert survived.holds("a", "t")
    assert not survived.holds("a", "other tests")


def test_an_equivalent_mutant_is_known_by_its_line_wherever_it_stands() -> None:
    change = Change.between("def f():\n    return a < b\n", "def f():\n    return a <= b\n")
    known = Equivalent("m.py", "return a < b", ("return a <= b",), "a is never b")
    assert known.covers("m.py", change)
    assert not known.covers("n.py", change)
    assert not known.covers("m.py", Change("return a < b", "return a > b"))


def test_what_is_listed_of_a_line_that_is_gone_is_told() -> None:
    known = Equivalent("m.py", "if value > LIMIT:", ("if value >= LIMIT:",), "")
    gone = Equivalent("m.py", "if value > MOST:", ("if value >= MOST:",), "")
    assert stale([known, gone], {"m.py": SOURCE}) == [gone]


def test_every_module_has_sources_and_tests() -> None:
    for module in MODULES.values():
        assert all((ROOT / each).exists() for each in (*module.sources, *module.tests))


def test_every_listed_survivor_names_a_file_that_is_sampled_and_says_why() -> None:
    sampled = {file for module in MODULES.values() for file in module.source_files(ROOT)}
    survivors = listed(ROOT / "tests" / "mutants" / "survivors.toml")
    for each in survivors:
        assert each.file in sampled
        assert each.mutants
        assert each.reason
    assert stale(survivors, {file: (ROOT / file).read_text() for file in sampled}) == []


def test_what_is_loaded_early_is_what_the_set_up_installs() -> None:
    pinned = {
        line.partition("==")[0].lower().replace("_", "-")
        for file in ("constraints.txt", "constraints-mutants.txt")
        for line in (ROOT / file).read_text().splitlines()
    }
    of = packages_distributions()
    loaded = {each.partition(".")[0] for each in LOADED_EARLY}
    asked = {each: of.get(each, [each])[0].lower().replace("_", "-") for each in loaded}
    assert {each for each, package in asked.items() if package not in pinned} == set()
