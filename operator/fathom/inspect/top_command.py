"""`fathom top`."""

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from fathom.adapters import kube_config
from fathom.adapters.ports import KubeError
from fathom.inspect.cluster import Listed, connected, read_all
from fathom.inspect.options import Context, Kubeconfig, Namespace, kube_sentence, refusing
from fathom.inspect.top_view import print_whole, top_table

EVERY_S: Final = 2.0

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def top_command(
    *,
    namespace: Namespace = "",
    all_namespaces: Annotated[
        bool, typer.Option("-A", "--all-namespaces", help="Show all namespaces.")
    ] = False,
    watch: Annotated[
        bool, typer.Option("-w", "--watch", help="Refresh every 2 seconds, until Ctrl-C.")
    ] = False,
    context: Context = "",
    kubeconfig: Kubeconfig = None,
) -> None:
    """Show all SpeculativeDeployments: depth, speed, gain, what was decided last, and alarms."""
    with refusing():
        where = "" if all_namespaces else namespace or kube_config.namespace(kubeconfig, context)
        with suppress(KeyboardInterrupt):
            asyncio.run(_show(where, kubeconfig, context, watch=watch))


async def _show(namespace: str, kubeconfig: Path | None, context: str, *, watch: bool) -> None:
    console = Console()
    async with connected(kubeconfig, context) as kube:
        listed = await read_all(kube, namespace)
        if not watch:
            print_whole(console, _screen(listed, namespace, ""))
            return
        with Live(_screen(listed, namespace, ""), console=console, auto_refresh=False) as live:
            while True:
                await asyncio.sleep(EVERY_S)
                try:
                    listed, trouble = await read_all(kube, namespace), ""
                except KubeError as error:
                    # The last look stays; what is gone for a moment need not end the watching.
                    trouble = f"{kube_sentence(error)} What is shown is older."
                live.update(_screen(listed, namespace, trouble), refresh=True)


def _screen(listed: tuple[Listed, ...], namespace: str, trouble: str) -> RenderableType:
    where = f"namespace {namespace}" if namespace else "any namespace"
    shown: RenderableType = Text(f"There is no SpeculativeDeployment in {where}.")
    if listed:
        shown = top_table(listed, with_namespace=not namespace)
    return Group(shown, Text(trouble, style="red")) if trouble else shown
