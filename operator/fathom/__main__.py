"""`fathom`, `python -m fathom` and `kubectl fathom`: before anything large is imported.

kubectl starts what is on PATH as `kubectl-fathom`, and asks `kubectl_complete-fathom` what the last
word of `kubectl fathom ...` may become.
"""

import importlib
import os
import shlex
import signal
import sys
from contextlib import redirect_stdout, suppress
from io import StringIO
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import typer

_OF_A_CONTAINER: Final = "run"
"""The command that a pod starts as its process 1."""
_FOR_SHELLS: Final = frozenset({"install_completion", "show_completion"})
"""Options of `fathom` that mean nothing to kubectl, which completes its plugins by itself."""
_FILES_TOO, _NOTHING_ELSE = ":0", ":4"
"""The last line of an answer to kubectl, by Cobra's ShellCompDirective: whether the shell goes on
to names of files."""


def main() -> None:
    """Run the command that is asked for."""
    if sys.argv[1:2] == [_OF_A_CONTAINER]:
        _leave_on_sigterm()
    _app()()


def kubectl_fathom() -> None:
    """Run a command of `kubectl fathom`."""
    command = importlib.import_module("typer.main").get_command(_app())
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
        _app()(prog_name="fathom")
    found = answer.getvalue().split()
    for each in (*found, _NOTHING_ELSE if found else _FILES_TOO):
        sys.stdout.write(f"{each}\n")


def _app() -> "typer.Typer":
    found: typer.Typer = importlib.import_module("fathom.cli.main").app
    return found


def _leave_on_sigterm() -> None:
    """Process 1 of a pod ignores what it has no handler for, and would be killed much later.

    Imports take seconds on a node that has just begun. Nothing is held by then, so that it may go
    at once, as `fathom run` goes after a signal. Its own handler takes the place of this one.
    """
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))


if __name__ == "__main__":
    main()
