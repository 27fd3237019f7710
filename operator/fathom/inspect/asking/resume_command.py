"""`fathom resume`."""

import typer

from fathom.adapters.ports import KubePort
from fathom.api import names
from fathom.core.cluster.kinds import ObjectKey
from fathom.core.pause import pause_of
from fathom.inspect.asking.annotation import annotate
from fathom.inspect.cluster import Reported, read_reported
from fathom.inspect.options import Context, Kubeconfig, Name, Namespace, refuse
from fathom.inspect.target import on_resource

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def resume_command(
    name: Name,
    *,
    namespace: Namespace = "",
    context: Context = "",
    kubeconfig: Kubeconfig = None,
) -> None:
    """End a pause: what was held goes on where it was."""

    async def resumed(kube: KubePort, key: ObjectKey) -> Reported | None:
        before = await read_reported(kube, key)
        if before is not None and pause_of(before.metadata.annotations):
            await annotate(kube, key, names.ANNOTATION_PAUSED, None)
        return before

    key, before = on_resource(
        name, resumed, namespace=namespace, context=context, kubeconfig=kubeconfig
    )
    if not pause_of(before.metadata.annotations):
        refuse(
            f"{key} is not paused by annotation {names.ANNOTATION_PAUSED}, so there is nothing to "
            "end. A rollout that its spec holds goes on with rollout.paused: false."
        )
    typer.echo(f"{key} goes on where it was.")
