"""Where the benchmarks' results go: to a console, and into a file if one is named."""

from pathlib import Path

from rich.console import Console

from local_cluster.errors import LocalClusterError


def result_console(width: int) -> Console:
    """The console, so many columns wide where it is a file: a file has no width; tables have."""
    console = Console()
    if not console.is_terminal:
        console.width = width
    return console


def require_folder(file: Path | None) -> None:
    """See before a long run that its figures can be written after it.

    Raises:
        LocalClusterError: the file's folder is not there.
    """
    if file is not None and not file.absolute().parent.is_dir():
        raise LocalClusterError(f"There is no folder for {file}; make it first.")
