"""Every command that `fathom` lists is there, and a page tells of it."""

from pathlib import Path
from typing import Final

import pytest
import typer
from typer.core import TyperGroup
from typer.testing import CliRunner

from fathom.cli.main import app
from support.help_examples import every_example, examples
from unit.replay.recorded import record, write
from unit.tuning.plant import EASY, Fleet

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


@pytest.mark.parametrize(("name", "words"), every_example())
def test_the_help_of_each_command_has_an_example_that_it_takes(
    name: str, words: tuple[str, ...]
) -> None:
    """Those that ask a cluster run in tests/cluster/test_inspect.py, a bench in test_bench.py."""
    assert words[:1] == (name,), f"`fathom {name} --help` has no line `Example: fathom {name} …`"
    assert CliRunner().invoke(app, [*words, "-h"]).exit_code == 0


def test_each_way_to_use_check_has_an_example() -> None:
    of_check = [words for name, words in every_example() if name == "check"]
    assert ["--live" in words for words in of_check] == [False, True]


def test_examples_with_files_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    example = REPOSITORY / "examples" / "kimi-k2.6-gb200.yaml"
    Path("kimi.yaml").write_text(example.read_text(encoding="utf-8"), encoding="utf-8")
    write(Path("day.jsonl.gz"), record(Fleet(acceptance=EASY), 120))

    for name in ("check", "render", "replay"):
        result = CliRunner().invoke(app, list(examples()[name]))
        assert (result.exit_code, result.stderr) == (0, ""), name
        assert result.stdout
