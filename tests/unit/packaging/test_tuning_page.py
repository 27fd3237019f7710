"""The constants that docs/tuning.md names are those of the code."""

import re
from ast import literal_eval
from importlib import import_module
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[3] / "docs" / "tuning.md").read_text()
ROWS = re.findall(r"^\| `([\w.]+)\.(\w+)` \| ([^|]+) \|", PAGE, re.MULTILINE)


def test_the_page_has_constants() -> None:
    assert ROWS


@pytest.mark.parametrize(("module", "name", "value"), ROWS, ids=lambda each: each)
def test_constants_are_those_of_the_code(module: str, name: str, value: str) -> None:
    assert getattr(import_module(f"fathom.tuning.{module}"), name) == literal_eval(value)
