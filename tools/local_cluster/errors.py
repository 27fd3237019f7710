"""Failures that the user can act on, and how a command ends with one."""

import contextlib
from collections.abc import Iterator

import typer
from rich.console import Console


class LocalClusterError(Exception):
    """Something the user can act on; the message says what, where, and what to do."""


@contextlib.contextmanager
def explained() -> Iterator[None]:
    """Show what the user can act on without a traceback, and end with exit code 1."""
    try:
        yield
    except LocalClusterError as error:
        Console(stderr=True).print(f"[red]Error:[/red] {error}", highlight=False, soft_wrap=True)
        raise typer.Exit(1) from error
