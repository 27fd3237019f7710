"""`fathom history`: what was decided, when, and why.

The status keeps the last ten decisions of the tuner and the last rollout, the tuning ConfigMap a
day of restarts, and the cluster its events for as long as it is told to, commonly an hour.
"""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from fathom.adapters.ports import KubeError, KubePort
from fathom.api import names
from fathom.api.status import DecisionStatus, SpeculativeDeploymentStatus
from fathom.cli.cluster import read_reported
from fathom.cli.options import Context, Kubeconfig, Name, Namespace, kube_sentence, on_resource
from fathom.cluster.kinds import CONFIG_MAP, ObjectKey
from fathom.cluster.manifest import Manifest
from fathom.cluster.observed import ObservedConfigMap, ObservedEvent
from fathom.reconcile.checkpoint import Checkpoint
from fathom.resource import signed
from fathom.rollout.refresh import RefreshLog
from fathom.times import rfc3339

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@dataclass(frozen=True, slots=True)
class Happened:
    """One thing that was decided, done, or told."""

    at: str
    """RFC 3339, UTC."""
    what: str
    """One word."""
    why: str
    """A sentence."""


def history_of(
    status: SpeculativeDeploymentStatus, refreshes: RefreshLog, events: Iterable[ObservedEvent]
) -> tuple[Happened, ...]:
    """All that is known of the past, newest first; what two sources tell, once.

    Args:
        status: of the resource.
        refreshes: replicas that were restarted for their age.
        events: that are about the resource.
    """
    told = _told(status)
    known = [*_from_status(status), *_refreshed(refreshes)]
    known += [
        Happened(rfc3339(each.at_s), each.reason, each.message)
        for each in events
        if each.message not in told
    ]
    return tuple(sorted(known, key=lambda each: each.at, reverse=True))


def _told(status: SpeculativeDeploymentStatus) -> frozenset[str]:
    """Messages of events about what the status tells as well."""
    told = [each.message for each in status.tuning.history]
    if status.rollout is not None:
        told.append(status.rollout.message)
    if (quality := status.quality) is not None:
        told.append(f"{quality.result}: {quality.message}")
    return frozenset(told)


def _from_status(status: SpeculativeDeploymentStatus) -> Iterator[Happened]:
    for each in status.tuning.history:
        yield Happened(each.at, each.action, _decided(each))
    rollout = status.rollout
    if rollout is not None and rollout.since:
        why = " ".join(part for part in (rollout.message, rollout.why) if part)
        yield Happened(rollout.since, rollout.stage, why or rollout.reason)
    if status.quality is not None:
        yield Happened(status.quality.at, status.quality.result, status.quality.message)


def _decided(decision: DecisionStatus) -> str:
    expected, measured = decision.expected_gain_percent, decision.measured_gain_percent
    gains = (
        f" Expected over all traffic: {signed(expected)} %." if expected else "",
        f" Measured over all traffic: {signed(measured)} %." if measured else "",
    )
    return f"{decision.message or decision.reason}{''.join(gains)}"


def _refreshed(refreshes: RefreshLog) -> Iterator[Happened]:
    for each in refreshes.refreshes:
        yield Happened(rfc3339(each.at_s), "Refreshing", f"{each.pod} was restarted for its age.")


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
    commonly drop after an hour. What may not be read is left out, and named on stderr.
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
