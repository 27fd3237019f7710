"""`fathom history`."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from fathom.adapters.ports import KubeError, KubePort
from fathom.api import names
from fathom.api.status import SpeculativeDeploymentStatus
from fathom.core.cluster.kinds import CONFIG_MAP, ObjectKey
from fathom.core.cluster.manifest import Manifest
from fathom.core.cluster.observed import ObservedConfigMap, ObservedEvent
from fathom.inspect.cluster import read_reported
from fathom.inspect.options import Context, Kubeconfig, Name, Namespace, kube_sentence
from fathom.inspect.reported.history import Happened, history_of
from fathom.inspect.target import on_resource
from fathom.reconcile.checkpoint import Checkpoint
from fathom.rollout.refresh import RefreshLog

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def history_command(
    name: Name,
    *,
    namespace: Namespace = "",
    context: Context = "",
    kubeconfig: Kubeconfig = None,
) -> None:
    """Say what was decided for one, when and why, newest first.

    From its status, from what the operator keeps, and from the cluster's events, which clusters
    commonly drop after an hour. What may not be read is left out, and said.
    """
    key, past = on_resource(
        name, read_past, namespace=namespace, context=context, kubeconfig=kubeconfig
    )
    console = Console()
    if past.happened:
        console.print(history_table(past.happened))
    else:
        console.print(f"Nothing is known of {key} yet.")
    for sentence in past.missing:
        typer.echo(sentence, err=True)


@dataclass(frozen=True, slots=True)
class KnownPast:
    """What became of one resource."""

    happened: tuple[Happened, ...]
    missing: tuple[str, ...]
    """What could not be read, in sentences."""


async def read_past(kube: KubePort, key: ObjectKey) -> KnownPast | None:
    """Read all that tells of a resource's past; None: there is no such resource.

    Raises:
        KubeError: the resource itself cannot be read.
    """
    reported = await read_reported(kube, key)
    if reported is None:
        return None
    missing: list[str] = []
    refreshes, events = await asyncio.gather(
        _refreshes(kube, key, missing), _events(kube, key, missing)
    )
    status = reported.status or SpeculativeDeploymentStatus()
    return KnownPast(history_of(status, refreshes, events), tuple(missing))


def history_table(happened: Sequence[Happened]) -> Table:
    """A row for each."""
    table = Table(box=None, pad_edge=False)
    table.add_column("AT", no_wrap=True)
    table.add_column("WHAT", no_wrap=True)
    table.add_column("WHY")
    for each in happened:
        table.add_row(each.at, each.what, Text(each.why))
    return table


async def _refreshes(kube: KubePort, key: ObjectKey, missing: list[str]) -> RefreshLog:
    try:
        found = await kube.get(CONFIG_MAP, key.namespace, names.tuning_config_map(key.name))
    except KubeError as error:
        missing.append(f"Restarts for age are left out. {kube_sentence(error)}")
        return RefreshLog()
    data = ObservedConfigMap.model_validate(found).data if found is not None else {}
    return Checkpoint.of(data).refreshes


async def _events(kube: KubePort, key: ObjectKey, missing: list[str]) -> tuple[ObservedEvent, ...]:
    try:
        found = await kube.events(key.namespace, key.name, "")
    except KubeError as error:
        missing.append(f"Events are left out. {kube_sentence(error)}")
        return ()
    # Its Service bears the same name, and has events of its own.
    ours = (each for each in found if _is_about_ours(each))
    return tuple(ObservedEvent.model_validate(each) for each in ours)


def _is_about_ours(event: Manifest) -> bool:
    about = event.get("involvedObject")
    return isinstance(about, dict) and about.get("kind") == names.KIND
