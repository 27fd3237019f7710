"""`fathom run`."""

from pathlib import Path
from typing import Annotated

import typer

from fathom.runtime.main import run
from fathom.runtime.options import LogFormat, RunOptions

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)

_DEFAULTS = RunOptions()


@app.command()
def run_command(
    *,
    namespace: Annotated[
        list[str] | None,
        typer.Option("-n", "--namespace", help="Serve this namespace only; may be repeated."),
    ] = None,
    leader_elect: Annotated[
        bool | None,
        typer.Option(
            "--leader-elect/--no-leader-elect",
            help="Hold a lease, so that a second operator may stand by. Default: in a pod.",
        ),
    ] = None,
    lease_name: Annotated[str, typer.Option(help="Name of the lease.")] = _DEFAULTS.lease_name,
    lease_namespace: Annotated[
        str, typer.Option(envvar="POD_NAMESPACE", help="Where the lease is.")
    ] = "",
    health_port: Annotated[
        int, typer.Option(help="Port of /healthz and /readyz; 0: none.")
    ] = _DEFAULTS.health_port,
    metrics_port: Annotated[
        int, typer.Option(help="Port of the operator's own /metrics; 0: none.")
    ] = _DEFAULTS.metrics_port,
    page_port: Annotated[
        int, typer.Option(help="Port of the page for people; 0: none.")
    ] = _DEFAULTS.page_port,
    page_host: Annotated[
        str, typer.Option(help="The address that the page listens on; empty: every one.")
    ] = _DEFAULTS.page_host,
    log_format: Annotated[
        LogFormat, typer.Option(help="How to log, to stderr.")
    ] = _DEFAULTS.log_format,
    kubeconfig: Annotated[
        Path | None,
        typer.Option(
            envvar="KUBECONFIG", help="Default: the pod's service account, or ~/.kube/config."
        ),
    ] = None,
) -> None:
    """Run the operator until it is stopped; what runs in the cluster is left as it is."""
    in_a_pod = bool(lease_namespace)
    options = RunOptions(
        namespaces=tuple(namespace or ()),
        leader_elect=in_a_pod if leader_elect is None else leader_elect,
        lease_name=lease_name,
        lease_namespace=lease_namespace or _DEFAULTS.lease_namespace,
        health_port=health_port,
        metrics_port=metrics_port,
        page_port=page_port,
        page_host=page_host,
        log_format=log_format,
        kubeconfig=kubeconfig,
    )
    raise typer.Exit(run(options))
