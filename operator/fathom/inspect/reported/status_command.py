"""`fathom status`."""

import typer
from rich.console import Console

from fathom.inspect.cluster import read_reported
from fathom.inspect.options import Context, Kubeconfig, Name, Namespace
from fathom.inspect.reported.status_view import status_view
from fathom.inspect.reported.wellness import wellness_of
from fathom.inspect.target import on_resource

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def status_command(
    name: Name,
    *,
    namespace: Namespace = "",
    context: Context = "",
    kubeconfig: Kubeconfig = None,
) -> None:
    """Say whether one is well, at which depth it runs and why, and what comes next.

    Reads the resource alone. Exit codes: 0, it is well, or paused; 1, not so, or not yet; 2, it
    cannot be read.
    """
    key, reported = on_resource(
        name, read_reported, namespace=namespace, context=context, kubeconfig=kubeconfig
    )
    wellness = wellness_of(reported)
    Console().print(status_view(key, reported, wellness))
    raise typer.Exit(0 if wellness.is_well else 1)
