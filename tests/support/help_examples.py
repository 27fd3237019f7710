"""The examples in the help of each command."""

import re
import shlex

import typer
from typer.core import TyperGroup

from fathom.cli.main import app


def examples() -> dict[str, tuple[str, ...]]:
    """The words of each command's first example, after `fathom`; empty: its help has none."""
    return dict(reversed(every_example()))


def every_example() -> list[tuple[str, tuple[str, ...]]]:
    """Each command, and the words of an example."""
    group = typer.main.get_command(app)
    assert isinstance(group, TyperGroup)
    context = typer.Context(group)
    found: list[tuple[str, tuple[str, ...]]] = []
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if command.hidden or name == "local":
            continue
        lines = re.findall(r"^Example: fathom (.+)$", command.help or "", re.MULTILINE)
        found += [(name, tuple(shlex.split(line))) for line in lines or [""]]
    return found
