"""`fathom history`: what was decided, when, and why.

The status keeps the last ten decisions of the tuner, the last rollout and how far a training is,
the tuning ConfigMap a day of restarts and a week of trainings that began, and the cluster its
events for as long as it is told to, commonly an hour.
"""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Literal

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from fathom.adapters.ports import KubeError, KubePort, SystemClock
from fathom.api import names
from fathom.api.status import DecisionStatus, ReportedStatus, SpeculativeDeploymentStatus
from fathom.api.training import TrainingPhase
from fathom.cli.arguments import AnyName, asked_for
from fathom.cli.cluster import read_reported
from fathom.cli.documents import (
    AsOutput,
    Document,
    Output,
    Part,
    ResourceKind,
    resource_kind,
    written,
)
from fathom.cli.options import Context, Kubeconfig, Namespace, kube_sentence, on_either
from fathom.cluster.events import EventReason
from fathom.cluster.kinds import CONFIG_MAP, SPECULATIVE_DEPLOYMENT, Kind, ObjectKey
from fathom.cluster.manifest import Manifest
from fathom.cluster.observed import ObservedConfigMap, ObservedEvent
from fathom.health import UNREADABLE, signed
from fathom.reconcile.checkpoint import Checkpoint
from fathom.rollout.refresh import RefreshLog
from fathom.times import ago, rfc3339, unix_seconds
from fathom.training.record import TrainingRecord, hours

_OF_TRAINING: Final = tuple(each for each in EventReason if each.startswith(("Training", "Draft")))
"""Reasons of events of which there is one for each phase that a training comes to."""

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


class Source(StrEnum):
    """Who reports that something happened."""

    TUNER = "tuner"
    ROLLOUT = "rollout"
    QUALITY_CHECK = "quality check"
    REFRESH = "refresh"
    TRAINING = "training"
    EVENT = "event"


class Happened(Part):
    """One thing that was decided or done."""

    at: str
    """RFC 3339, UTC."""
    source: Source
    what: str
    """One word."""
    why: str
    """A sentence."""


class HistoryList(Document):
    """The document of `fathom history`."""

    kind: Literal["HistoryList"] = "HistoryList"
    namespace: str
    name: str
    resource_kind: ResourceKind
    items: tuple[Happened, ...]
    """Newest first."""


def history_of(
    status: ReportedStatus, kept: Checkpoint, events: Sequence[ObservedEvent]
) -> tuple[Happened, ...]:
    """All that is known of the past, newest first; what two sources tell, once.

    Args:
        status: of the resource.
        kept: what the operator keeps of it.
        events: that are about the resource.
    """
    told = _told(status)
    known = [*_from_status(status), *_refreshed(kept.refreshes)]
    known += _trained(status, kept.training, events)
    known += [
        _happened(rfc3339(each.at_s), Source.EVENT, each.reason, each.message)
        for each in events
        if each.message not in told
    ]
    return tuple(sorted(known, key=lambda each: each.at, reverse=True))


def _told(status: ReportedStatus) -> frozenset[str]:
    """Messages of events about what the status tells as well."""
    told = [each.message for each in status.tuning.history]
    if not isinstance(status, SpeculativeDeploymentStatus):
        return frozenset(told)
    if status.rollout is not None:
        told.append(status.rollout.message)
    if (quality := status.quality) is not None:
        told.append(f"{quality.result}: {quality.message}")
    return frozenset(told)


def _from_status(status: ReportedStatus) -> Iterator[Happened]:
    yield from decisions(status)
    if not isinstance(status, SpeculativeDeploymentStatus):
        return
    rollout = status.rollout
    if rollout is not None and rollout.since:
        why = " ".join(part for part in (rollout.message, rollout.why) if part)
        yield _happened(rollout.since, Source.ROLLOUT, rollout.stage, why or rollout.reason)
    if (quality := status.quality) is not None:
        yield _happened(quality.at, Source.QUALITY_CHECK, quality.result, quality.message)


def decisions(status: ReportedStatus) -> Iterator[Happened]:
    """The last ten of the tuner, newest first."""
    for each in status.tuning.history:
        yield _happened(each.at, Source.TUNER, each.action, _decided(each))


def _happened(at: str, source: Source, what: str, why: str) -> Happened:
    return Happened(at=at, source=source, what=what, why=why)


def _decided(decision: DecisionStatus) -> str:
    expected, measured = decision.expected_gain_percent, decision.measured_gain_percent
    gains = (
        f" Expected over all traffic: {signed(expected)} %." if expected else "",
        f" Measured over all traffic: {signed(measured)} %." if measured else "",
    )
    return f"{decision.message or decision.reason}{''.join(gains)}"


def _refreshed(refreshes: RefreshLog) -> Iterator[Happened]:
    for each in refreshes.refreshes:
        why = f"{each.pod} was restarted for its age."
        yield _happened(rfc3339(each.at_s), Source.REFRESH, "Refreshing", why)


def _trained(
    status: ReportedStatus, record: TrainingRecord, events: Iterable[ObservedEvent]
) -> Iterator[Happened]:
    """What is kept of trainings, as far as no event tells of it any more."""
    told = [each for each in events if each.reason in _OF_TRAINING]
    for start in record.starts:
        # The Job of a run has its name.
        ours = (each for each in told if start.run in each.message)
        if all(each.reason != EventReason.TRAINING_STARTED for each in ours):
            why = f"Run {start.run} began, for at most {hours(start.gpu_minutes)} GPU hours."
            yield _happened(rfc3339(start.at_s), Source.TRAINING, TrainingPhase.TRAINING, why)
    found = status.training if isinstance(status, SpeculativeDeploymentStatus) else None
    since_s = unix_seconds(found.since) if found is not None else None
    if found is None or since_s is None or any(each.at_s >= since_s for each in told):
        return
    if found.phase is not TrainingPhase.TRAINING or not record.starts:
        yield _happened(found.since, Source.TRAINING, found.phase, found.message)


@app.command()
def history_command(
    name: AnyName,
    *,
    namespace: Namespace = "",
    output: AsOutput = Output.TEXT,
    context: Context = "",
    kubeconfig: Kubeconfig = None,
) -> None:
    """Say what was decided for one, when and why, newest first.

    From its status, from what the operator keeps, and from the cluster's events, which clusters
    commonly drop after an hour. What may not be read is left out, and named on stderr.

    Example: fathom history kimi-k2 -n llm

    Example: fathom history tuner/qwen -n llm
    """
    key, past = on_either(
        asked_for(name), read_past, namespace=namespace, context=context, kubeconfig=kubeconfig
    )
    console = Console()
    if output is not Output.TEXT:
        found = HistoryList(
            namespace=key.namespace,
            name=key.name,
            resource_kind=resource_kind(key.kind),
            items=past.happened,
        )
        typer.echo(written(found, output))
    elif past.happened:
        console.print(history_table(past.happened, SystemClock().now_s()))
    elif not past.missing:
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
    if reported.unreadable or reported.hides_training:
        part = "Its status" if reported.unreadable else "Its training"
        missing.append(f"{part} is left out. {UNREADABLE}")
    kept, events = await asyncio.gather(_kept(kube, key, missing), _events(kube, key, missing))
    status = reported.status or ReportedStatus()
    return KnownPast(history_of(status, kept, events), tuple(missing))


def history_table(happened: Sequence[Happened], now_s: float) -> Table:
    """A row for each, as seen at a moment (Unix seconds)."""
    table = Table(box=None, pad_edge=False)
    table.add_column("AGE", no_wrap=True, justify="right")
    table.add_column("SOURCE", no_wrap=True)
    table.add_column("WHAT", no_wrap=True)
    table.add_column("WHY", overflow="fold")
    for each in happened:
        age = ago(each.at, now_s).removesuffix(" ago")
        table.add_row(Text(age), each.source, Text(each.what), Text(each.why))
    return table


async def _kept(kube: KubePort, key: ObjectKey, missing: list[str]) -> Checkpoint:
    if key.kind != SPECULATIVE_DEPLOYMENT:
        return Checkpoint()
    try:
        found = await kube.get(CONFIG_MAP, key.namespace, names.tuning_config_map(key.name))
    except KubeError as error:
        missing.append(
            f"Restarts for age and trainings that began are left out. {kube_sentence(error)}"
        )
        return Checkpoint()
    return Checkpoint.of(ObservedConfigMap.model_validate(found).data if found is not None else {})


async def _events(kube: KubePort, key: ObjectKey, missing: list[str]) -> tuple[ObservedEvent, ...]:
    try:
        found = await kube.events(key.namespace, key.name, "")
    except KubeError as error:
        missing.append(f"Events are left out. {kube_sentence(error)}")
        return ()
    # Its Service bears the same name, and has events of its own.
    ours = (each for each in found if _is_about(each, key.kind))
    return tuple(ObservedEvent.model_validate(each) for each in ours)


def _is_about(event: Manifest, kind: Kind) -> bool:
    about = event.get("involvedObject")
    return isinstance(about, dict) and about.get("kind") == kind.kind
