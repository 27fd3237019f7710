import contextlib
from collections.abc import Iterator

import typer
from rich.console import Console

from fathom_local.errors import LocalClusterError


@contextlib.contextmanager
def explained() -> Iterator[None]:
    """Show what the user can act on without a traceback, and end with exit code 1."""
    try:
        yield
    except LocalClusterError as error:
        Console(stderr=True).print(f"[red]Error:[/red] {error}", highlight=False, soft_wrap=True)
        raise typer.Exit(1) from error
