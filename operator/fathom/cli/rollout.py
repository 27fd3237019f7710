"""`fathom rollout`."""

import typer

from fathom.adapters.ports import KubePort
from fathom.api import names
from fathom.api.status import OFFERED, RolloutStatus
from fathom.cli.cluster import read_reported
from fathom.cli.options import Context, Kubeconfig, Name, Namespace, refuse
from fathom.cli.target import annotate, on_resource
from fathom.cluster.kinds import ObjectKey

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def rollout_command(
    name: Name,
    *,
    namespace: Namespace = "",
    context: Context = "",
    kubeconfig: Kubeconfig = None,
) -> None:
    """Roll out what the operator renders otherwise since it was upgraded or rolled back.

    Pods stay as they run until then. Names the revision that status.rollout offers in the
    annotation fathom.dev/rollout; the spec stays as it is. Exit code 2: nothing is offered.
    """
    key, offered = on_resource(
        name, asked_for, namespace=namespace, context=context, kubeconfig=kubeconfig
    )
    typer.echo(
        f"{key}: revision {offered.revision} replaces {offered.stable}, one canary first: "
        f"{offered.why}. `kubectl annotate sd {name} {names.ANNOTATION_ROLLOUT}-` takes that back."
    )


async def asked_for(kube: KubePort, key: ObjectKey) -> RolloutStatus | None:
    """Ask for the rollout that is offered.

    Args:
        kube: the cluster.
        key: the SpeculativeDeployment.

    Returns:
        What was offered; None: there is no such resource.

    Raises:
        KubeError: something could not be read or written.
        typer.Exit: nothing is offered; stderr says what stands there instead.
    """
    reported = await read_reported(kube, key)
    if reported is None:
        return None
    rollout = reported.status.rollout if reported.status else None
    if rollout is None or rollout.stage != OFFERED:
        last = f" Its rollout to {rollout.revision} is at {rollout.stage}." if rollout else ""
        refuse(f"Nothing is offered for {key}: its pods are what its operator renders.{last}")
    await annotate(kube, key, names.ANNOTATION_ROLLOUT, rollout.revision)
    return rollout
