"""`fathom report`."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from fathom.adapters import kube_config
from fathom.adapters.clock import SystemClock
from fathom.core.cluster.kinds import ObjectKey
from fathom.core.depth_bench import DepthBench
from fathom.inspect.cluster import LiveResource, connected, read_bench, read_resource
from fathom.inspect.options import Context, Kubeconfig, Name, Namespace, refuse, refusing
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
    with refusing():
        key = ObjectKey(namespace or kube_config.namespace(kubeconfig, context), name)

        async def read() -> tuple[LiveResource | None, DepthBench | None]:
            async with connected(kubeconfig, context) as kube:
                return await read_resource(kube, key), await read_bench(kube, key)

        live, bench = asyncio.run(read())
    if live is None:
        refuse(f"There is no SpeculativeDeployment {key}.")
    subject = Subject(key, live.resource, live.status, live.document, live.state, None, bench)
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
