"""A page as one file."""

from pathlib import Path

import typer

from fathom.inspect.options import refuse


def write_page(page: str, file: Path) -> None:
    """Write a page that stands alone, and say where it is.

    Raises:
        typer.Exit: it cannot be written; stderr says why.
    """
    try:
        file.write_text(page, encoding="utf-8")
    except OSError as error:
        refuse(f"{file}: cannot be written: {error.strerror}.")
    typer.echo(f"Written: {file}")
