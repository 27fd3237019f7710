"""`fathom`, and `python -m fathom`: what is there before anything large is imported."""

import importlib
import os
import signal
import sys
from typing import Final

_OF_A_CONTAINER: Final = "run"
"""The command that a pod starts as its process 1."""


def main() -> None:
    """Run the command that is asked for."""
    if sys.argv[1:2] == [_OF_A_CONTAINER]:
        _leave_on_sigterm()
    importlib.import_module("fathom.cli.main").app()


def _leave_on_sigterm() -> None:
    """Process 1 of a pod ignores what it has no handler for, and would be killed much later.

    Imports take seconds on a node that has just begun. Nothing is held by then, so that it may go
    at once, as `fathom run` goes after a signal. Its own handler takes the place of this one.
    """
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))


if __name__ == "__main__":
    main()
