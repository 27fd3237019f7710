"""`fathom pause` and `fathom resume`: both write an annotation."""

from typing import Annotated

import typer

from fathom.adapters.ports import KubePort
from fathom.api import names
from fathom.cli.cluster import Reported, read_reported
from fathom.cli.options import Context, Kubeconfig, Name, Namespace, refuse
from fathom.cli.target import annotate, on_resource
from fathom.cluster.kinds import ObjectKey
from fathom.reconcile.annotations import PAUSED_WITHOUT_REASON, pause_of

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
resume_app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def pause_command(
    name: Name,
    *,
    reason: Annotated[
        str, typer.Option(help="For whoever finds it paused; the status shows it.")
    ] = PAUSED_WITHOUT_REASON,
    namespace: Namespace = "",
    context: Context = "",
    kubeconfig: Kubeconfig = None,
) -> None:
    """Hold what the operator does by itself. Restarts nothing.

    Depth stays as it is, rollouts and refreshes wait; scaling and edits that change depth
    continue. Writes the annotation fathom.dev/paused, not the spec, so that what syncs the spec
    from Git finds no difference. `fathom resume` ends it.
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


@resume_app.command()
def resume_command(
    name: Name,
    *,
    namespace: Namespace = "",
    context: Context = "",
    kubeconfig: Kubeconfig = None,
) -> None:
    """End a pause: what was held continues where it was."""

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
            "end. A rollout that its spec holds continues with rollout.paused: false."
        )
    typer.echo(f"{key} continues where it was.")
