"""`kubectl fathom`: the commands of `fathom`, as kubectl starts and completes them.

kubectl starts what is on PATH as `kubectl-fathom`, and asks `kubectl_complete-fathom` what the last
word of `kubectl fathom ...` may become.
"""

import os
import shlex
import sys
from contextlib import redirect_stdout, suppress
from io import StringIO
from typing import Final

import typer

from fathom.cli.main import app

_FOR_SHELLS: Final = frozenset({"install_completion", "show_completion"})
"""Options of `fathom` that mean nothing to kubectl, which completes its plugins by itself."""
_FILES_TOO, _NOTHING_ELSE = ":0", ":4"
"""The last line of an answer to kubectl, by Cobra's ShellCompDirective: whether the shell goes on
to names of files."""


def kubectl_fathom() -> None:
    """Run a command of `kubectl fathom`."""
    command = typer.main.get_command(app)
    command.params = [each for each in command.params if each.name not in _FOR_SHELLS]
    command(prog_name="kubectl fathom")


def kubectl_complete_fathom() -> None:
    """Print what the last of the words after `kubectl fathom` may become, one a line.

    Typer answers bash in that form, and so is asked as bash would.
    """
    words = ["fathom", *(sys.argv[1:] or [""])]
    os.environ["_FATHOM_COMPLETE"] = "complete_bash"
    os.environ["COMP_WORDS"], os.environ["COMP_CWORD"] = shlex.join(words), str(len(words) - 1)
    answer = StringIO()
    with redirect_stdout(answer), suppress(SystemExit):
        app(prog_name="fathom")
    found = answer.getvalue().split()
    for each in found:
        typer.echo(each)
    typer.echo(_NOTHING_ELSE if found else _FILES_TOO)
