"""A constant of the tuner says its unit and its reason, and the page is what the code says."""

from pathlib import Path

import pytest

from generators.tuning_constants import (
    Constant,
    UndocumentedConstantError,
    constants,
    reference,
)

PAGE = Path(__file__).parents[3] / "docs" / "tuning-constants.md"


def found(source: str) -> list[Constant]:
    values: dict[str, object] = {}
    exec(f"from typing import Final\n{source}", values)
    return list(constants(source, "module", values))


def test_the_page_is_what_the_code_says() -> None:
    assert PAGE.read_text() == reference(), "Run: make regenerate"


def test_a_constant_has_its_value_its_unit_and_its_reason() -> None:
    source = '''
REST_S: Final = 2 * 60.0
"""How long nothing is tried:
no more."""
TURNS_FACTORS: Final = (0.5, 3)
"""Least | most."""
'''
    assert found(source) == [
        Constant("module.REST_S", 120.0, "s", "How long nothing is tried: no more."),
        Constant("module.TURNS_FACTORS", (0.5, 3), "times", r"Least \| most."),
    ]


def test_what_is_private_or_no_number_is_none() -> None:
    assert found('_REST_S: Final = 1.0\nNAMES: Final = ("a", "b")\nREST_S = 3.0\n') == []


@pytest.mark.parametrize(
    ("source", "lacks"),
    [
        ('NEAR: Final = 2.0\n"""So much is near."""\n', "its last word is no unit"),
        ("NEAR_S: Final = 2.0\n", "as a docstring"),
        ("NEAR_S: Final = 2.0\nFAR_S = 3.0\n", "as a docstring"),
    ],
)
def test_one_without_unit_or_reason_is_refused(source: str, lacks: str) -> None:
    with pytest.raises(UndocumentedConstantError, match=rf"module\.NEAR.*{lacks}"):
        found(source)
