"""The example in the help of each command."""

import re
import shlex

import typer
from typer.core import TyperGroup

from fathom.cli.main import app


def examples() -> dict[str, tuple[str, ...]]:
    """The words of each command's example, after `fathom`; empty: its help has none."""
    group = typer.main.get_command(app)
    assert isinstance(group, TyperGroup)
    context = typer.Context(group)
    found: dict[str, tuple[str, ...]] = {}
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if command.hidden or name == "local":
            continue
        line = re.search(r"^Example: fathom (.+)$", command.help or "", re.MULTILINE)
        found[name] = tuple(shlex.split(line[1])) if line else ()
    return found
