"""`fathom report`."""

from pathlib import Path
from typing import Annotated

import typer

from fathom.adapters.clock import SystemClock
from fathom.adapters.ports import KubePort
from fathom.core.cluster.kinds import ObjectKey
from fathom.inspect.cluster import read_bench, read_resource
from fathom.inspect.options import Context, Kubeconfig, Name, Namespace, refuse
from fathom.inspect.target import on_resource
from fathom.page.rendering import resource_page
from fathom.page.resource_view import resource_view
from fathom.page.subject import Subject

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def report_command(
    name: Name,
    *,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="Default: NAME.html.")
    ] = None,
    namespace: Namespace = "",
    context: Context = "",
    kubeconfig: Kubeconfig = None,
) -> None:
    """Write one HTML file that shows a resource as the operator's page does, without its history.

    It needs nothing else and fetches nothing: attach it to a ticket, open it anywhere.
    """

    async def read(kube: KubePort, key: ObjectKey) -> Subject | None:
        live = await read_resource(kube, key)
        if live is None:
            return None
        bench = await read_bench(kube, key)
        return Subject(key, live.resource, live.status, live.document, live.state, None, bench)

    _, subject = on_resource(
        name, read, namespace=namespace, context=context, kubeconfig=kubeconfig
    )
    write_report(subject, SystemClock().now_s(), output or Path(f"{name}.html"))


def write_report(subject: Subject, now_s: float, file: Path) -> None:
    """Write a page that stands alone, and say where it is.

    Raises:
        typer.Exit: it cannot be written; stderr says why.
    """
    page = resource_page(resource_view(subject, now_s), home=False)
    try:
        file.write_text(page, encoding="utf-8")
    except OSError as error:
        refuse(f"{file}: cannot be written: {error.strerror}.")
    typer.echo(f"Written: {file}")
