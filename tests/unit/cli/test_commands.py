"""Every command that `fathom` lists is there, and a page tells of it."""

from pathlib import Path
from typing import Final

import pytest
import typer
from typer.core import TyperGroup
from typer.testing import CliRunner

from fathom.cli.main import app

REPOSITORY: Final = Path(__file__).parents[3]
PAGES: Final = "".join(
    page.read_text(encoding="utf-8")
    for page in (*(REPOSITORY / "docs").glob("*.md"), *REPOSITORY.glob("*.md"))
)
GROUP: Final = typer.main.get_command(app)
assert isinstance(GROUP, TyperGroup)
CONTEXT: Final = typer.Context(GROUP)


@pytest.mark.parametrize("name", GROUP.list_commands(CONTEXT))
def test_a_command_has_its_module_and_its_place_in_the_documentation(name: str) -> None:
    command = GROUP.get_command(CONTEXT, name)

    assert command is not None
    assert command.help, f"`fathom {name}` has no help: write the docstring of its function"
    assert command.hidden or f"fathom {name}" in PAGES, f"no page of docs/ names `fathom {name}`"


@pytest.mark.parametrize(
    ("typed", "meant"), [("chek", "check"), ("explian", "explain"), ("rendr", "render")]
)
def test_a_command_that_is_mistyped_is_told_which_is_meant(typed: str, meant: str) -> None:
    result = CliRunner().invoke(app, [typed])

    assert result.exit_code == 2
    assert f"No such command '{typed}'. Did you mean '{meant}'?" in result.stderr


def test_one_that_is_like_no_other_is_told_that_alone() -> None:
    result = CliRunner().invoke(app, ["nonsense"])

    assert result.exit_code == 2
    assert "No such command 'nonsense'. " in result.stderr
    assert "Did you mean" not in result.stderr
