"""`fathom pause`."""

from typing import Annotated

import typer

from fathom.adapters.ports import KubePort
from fathom.api import names
from fathom.core.cluster.kinds import ObjectKey
from fathom.core.pause import PAUSED_WITHOUT_REASON, pause_of
from fathom.inspect.asking.annotation import annotate
from fathom.inspect.options import Context, Kubeconfig, Name, Namespace, refuse
from fathom.inspect.target import on_resource

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def pause_command(
    name: Name,
    *,
    reason: Annotated[
        str, typer.Option(help="For whoever finds it paused; it stands in the status.")
    ] = PAUSED_WITHOUT_REASON,
    namespace: Namespace = "",
    context: Context = "",
    kubeconfig: Kubeconfig = None,
) -> None:
    """Hold what the operator does by itself. Restarts nothing.

    Depth stays as it is, rollouts and refreshes wait; scaling and edits that change depth go on.
    Writes the annotation fathom.dev/paused, not the spec, so that what syncs the spec from Git
    finds no difference. `fathom resume` ends it.
    """
    if not pause_of({names.ANNOTATION_PAUSED: reason}):
        refuse(f"--reason {reason!r} would be no pause: say why, or leave it out.")

    async def paused(kube: KubePort, key: ObjectKey) -> bool | None:
        return await annotate(kube, key, names.ANNOTATION_PAUSED, reason) or None

    key, _ = on_resource(name, paused, namespace=namespace, context=context, kubeconfig=kubeconfig)
    typer.echo(
        f"{key} is paused: depth stays as it is, and rollouts wait. REASON says Paused once the "
        f"operator has seen it. `kubectl fathom resume {name}` ends it."
    )
