"""How the code is laid out: docs/design/0058."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.pages import REPOSITORY

OPERATOR = REPOSITORY / "operator"
SOURCES = sorted(OPERATOR.rglob("*.py"))
MOST_FILES = 338
"""290, those of the second kind of resource (docs/design/0069, 0071), and of a draft's life."""
MOST_LINES = 350
OF_NUMBERS_IN_A_ROW = frozenset(
    {"CellCounts", "ContextCounts", "ContextTally", "DraftTally", "StepCounts"}
)
"""Made of a row of numbers, some hundred for each page that is read."""
SAY_NOTHING = frozenset(
    [
        "asked",
        "asking",
        "chronicle",
        "common",
        "core",
        "counted",
        "familiar",
        "feeding",
        "gained",
        "heard",
        "helpers",
        "judging",
        "misc",
        "near",
        "recalled",
        "received",
        "remembered",
        "reported",
        "said",
        "shown",
        "sights",
        "standing",
        "surroundings",
        "turn",
        "turns",
        "unplugged",
        "utils",
        "visit",
        "walk",
        "watching",
        "wellness",
    ]
)


def dataclasses(tree: ast.AST) -> Iterator[tuple[ast.ClassDef, ast.expr]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            for decorator in node.decorator_list:
                called = decorator.func if isinstance(decorator, ast.Call) else decorator
                if isinstance(called, ast.Name) and called.id == "dataclass":
                    yield node, decorator


def test_there_are_no_more_files_than_one_can_know() -> None:
    assert len(SOURCES) <= MOST_FILES


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: str(path.relative_to(OPERATOR)))
def test_a_file_is_not_too_long_and_its_name_says_something(source: Path) -> None:
    assert len(source.read_text(encoding="utf-8").splitlines()) <= MOST_LINES
    assert SAY_NOTHING.isdisjoint({source.stem, *source.relative_to(OPERATOR).parent.parts})


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: str(path.relative_to(OPERATOR)))
def test_a_dataclass_of_four_fields_or_more_is_made_by_name(source: Path) -> None:
    tree = ast.parse(source.read_text(encoding="utf-8"))
    for found, decorator in dataclasses(tree):
        fields = [each for each in found.body if isinstance(each, ast.AnnAssign)]
        if len(fields) < 4 or found.name in OF_NUMBERS_IN_A_ROW:
            continue
        options = decorator.keywords if isinstance(decorator, ast.Call) else []
        assert "kw_only" in {each.arg for each in options}, found.name


def test_the_operators_folder_is_what_the_wheel_ships() -> None:
    project = (REPOSITORY / "pyproject.toml").read_text(encoding="utf-8")
    packages = [each.name for each in OPERATOR.iterdir() if any(each.rglob("*.py"))]
    assert packages
    for name in packages:
        assert f'"operator/{name}"' in project
