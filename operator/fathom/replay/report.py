"""`fathom report`."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from fathom.adapters.ports import KubePort, SystemClock
from fathom.cli.cluster import read_bench, read_resource
from fathom.cli.options import Context, Kubeconfig, Name, Namespace, on_resource, refuse
from fathom.cluster.kinds import ObjectKey
from fathom.page.rendering import recording_page, resource_page
from fathom.page.resource_view import resource_view
from fathom.page.subject import Subject
from fathom.replay.page import ReplayPage
from fathom.replay.replay import Replay
from fathom.replay.run import feed_files, refusing_replays, run, settings_for

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


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


@app.command()
def report_command(
    name: Name,
    *,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="Default: NAME.html.")
    ] = None,
    recording: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            help="Ask no cluster, but read this, as `fathom replay` does. May be given again.",
        ),
    ] = None,
    filename: Annotated[
        str | None,
        typer.Option(
            *("-f", "--filename"),
            metavar="FILE",
            help="The SpeculativeDeployment whose wishes count for a recording.",
        ),
    ] = None,
    namespace: Namespace = "",
    context: Context = "",
    kubeconfig: Kubeconfig = None,
) -> None:
    """Write one HTML file that shows a resource as the operator's page does.

    From a cluster it has no history, which only the operator's own page has. From a recording it
    has what was recorded, and what the tuner would have decided.

    It needs nothing else and fetches nothing: attach it to a ticket, open it anywhere.

    Example: fathom report kimi-k2 -n llm -o kimi.html
    """
    if recording:
        page = recorded_page(ObjectKey(namespace, name), recording, filename)
    elif filename is not None:
        refuse("-f is for --recording only: without it, the spec is read from the cluster.")
    else:
        _, subject = on_resource(
            name, _read, namespace=namespace, context=context, kubeconfig=kubeconfig
        )
        page = resource_page(resource_view(subject, SystemClock().now_s()), home=False)
    write_page(page, output or Path(f"{name}.html"))


async def _read(kube: KubePort, key: ObjectKey) -> Subject | None:
    live = await read_resource(kube, key)
    if live is None:
        return None
    bench = await read_bench(kube, key)
    return Subject(
        key=key,
        resource=live.resource,
        status=live.status,
        document=live.document,
        state=live.state,
        history=None,
        bench=bench,
    )


def recorded_page(key: ObjectKey, files: Sequence[Path], manifest: str | None) -> str:
    """What recordings show of a resource, as a page.

    Args:
        key: what it is called there; its namespace may be empty.
        files: recordings; several are put together by time.
        manifest: the file whose wishes count; None: the API's defaults.

    Raises:
        typer.Exit: one of them cannot be read, or there is nothing in them; stderr says why.
    """
    with refusing_replays():
        settings = settings_for(manifest, {}, {}, None)
    shown = ReplayPage(settings)
    replayed = run(Replay(settings, shown.saw), partial(feed_files, files))
    return recording_page(shown.view(key, replayed))
