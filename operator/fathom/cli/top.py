"""`fathom top`. What is unknown is a dash: it is not zero."""

from collections.abc import Sequence
from typing import Final, Literal

import typer
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from fathom.adapters.ports import KubePort, SystemClock
from fathom.api.status import (
    DecisionStatus,
    MeasuredStatus,
    ReportedStatus,
    SpeculativeDeploymentStatus,
)
from fathom.api.training import TrainingPhase
from fathom.api.tuner import Level, SpeculationTunerStatus
from fathom.cli.cluster import AnyReported, Listed, read_all
from fathom.cli.documents import (
    AsOutput,
    Document,
    Output,
    Part,
    ResourceKind,
    number,
    resource_kind,
    written,
)
from fathom.cli.options import (
    AllNamespaces,
    Context,
    Kubeconfig,
    Namespace,
    Watch,
    chosen_namespace,
    from_cluster,
    left_out,
    no_resource,
    print_whole,
    refuse_watched_document,
    watch_cluster,
)
from fathom.cluster.kinds import SPECULATION_TUNER
from fathom.health import UNKNOWN, is_measured_now, standing, unwatched_since
from fathom.times import ago
from fathom.training.record import AWAITS_PERSON

_NUMBERS: Final = ("READY", "DEPTH", "ACCEPT", "TOK/S", "TPOT", "GAIN", "MEASURED")
"""The last says when something was measured: without traffic that is long ago, and those before it
are not known now."""
app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


class DepthOfBatches(Part):
    """One range of a depth schedule."""

    first_batch: int
    last_batch: int
    depth: int


class TopRow(Part):
    """One resource at a moment."""

    namespace: str
    name: str
    resource_kind: ResourceKind
    ready: str | None
    """Ready and wanted replicas, such as 2/2; of a SpeculationTuner readable pods and all."""
    level: Level | None
    """What can be done with the engines of a SpeculationTuner; null: not known, or it is none."""
    schedule: tuple[DepthOfBatches, ...] | None
    acceptance_length: float | None
    tokens_per_second: int | None
    tpot_milliseconds: float | None
    gain_percent: float | None
    measured_at: str | None
    tuning: str | None
    """Mode and what the tuner does, such as Auto/AtBest."""
    last_decision: str | None
    last_decision_at: str | None
    alarms: tuple[str, ...]
    training: TrainingPhase | None
    """How far the training of another draft is; null: none was proposed."""
    unwatched_since: str | None
    """When an operator last reconciled it, if that is long ago; null: one does."""


class TopList(Document):
    """The document of `fathom top`."""

    kind: Literal["TopList"] = "TopList"
    items: tuple[TopRow, ...]


def top_table(listed: Sequence[AnyReported], now_s: float, *, with_namespace: bool) -> Table:
    """One row per resource, as it is at a moment (Unix seconds)."""
    table = Table(box=None, pad_edge=False)
    if with_namespace:
        table.add_column("NAMESPACE", no_wrap=True)
    table.add_column("NAME", no_wrap=True)
    with_level = any(each.kind == SPECULATION_TUNER for each in listed)
    for column in _NUMBERS:
        table.add_column(column, justify="right", no_wrap=True)
        if column == "READY" and with_level:
            table.add_column("LEVEL", no_wrap=True)
    table.add_column("TUNING", no_wrap=True)
    table.add_column("LAST DECISION", ratio=1)
    table.add_column("ALARMS")
    for each in listed:
        namespace = (each.key.namespace,) if with_namespace else ()
        status = each.status or ReportedStatus()
        ready, *others = _cells(status, now_s)
        level = (_level(status) or UNKNOWN,) if with_level else ()
        table.add_row(*namespace, each.typed, ready, *level, *others)
    return table


def _level(status: ReportedStatus) -> Level | None:
    return status.level if isinstance(status, SpeculationTunerStatus) else None


def _cells(status: ReportedStatus, now_s: float) -> tuple[Text, ...]:
    alarms = standing(status, now_s)
    measured, decision = status.measured, status.tuning.last_decision
    # What was measured last stays in the status; only MEASURED, at its side, says when.
    of_now = measured if is_measured_now(status, now_s) else MeasuredStatus()
    tpot, rate = of_now.tpot_milliseconds, of_now.tokens_per_second
    cells = (
        status.of_all,
        status.depth.summary,
        of_now.acceptance_length,
        "" if rate is None else str(rate),
        f"{tpot} ms" if tpot else "",
        f"{of_now.gain_percent}%" if of_now.gain_percent else "",
        ago(measured.at, now_s),
        status.tuning.summary,
        _decision(decision) if decision else "",
    )
    return (
        *(Text(each or UNKNOWN) for each in cells),
        Text(", ".join((*alarms, *_waiting(status))) or UNKNOWN, style="red" if alarms else ""),
    )


def _training(status: ReportedStatus) -> TrainingPhase | None:
    found = status.training if isinstance(status, SpeculativeDeploymentStatus) else None
    return found.phase if found else None


def _waiting(status: ReportedStatus) -> tuple[str, ...]:
    """A training that waits for a person: it is no alarm, and is shown after those."""
    phase = _training(status)
    return (f"Training/{phase}",) if phase in AWAITS_PERSON else ()


def _decision(decision: DecisionStatus) -> str:
    """What was decided, or with mode Advise would be, and what it should gain."""
    gain, interval = decision.expected_gain_percent, decision.expected_gain_interval_percent
    expected = ""
    if gain:
        expected = f" Expected over all traffic: {gain}%{f' ({interval})' if interval else ''}."
    return f"{decision.message or decision.action}{expected}"


def top_list(listed: Sequence[AnyReported], now_s: float) -> TopList:
    """The same as a document."""
    return TopList(items=tuple(_row(each, now_s) for each in listed))


def _row(reported: AnyReported, now_s: float) -> TopRow:
    status = reported.status or ReportedStatus()
    measured, decision = status.measured, status.tuning.last_decision
    return TopRow(
        namespace=reported.key.namespace,
        name=reported.key.name,
        resource_kind=resource_kind(reported.kind),
        ready=status.of_all or None,
        level=_level(status),
        schedule=_schedule(status.depth.schedule),
        acceptance_length=number(measured.acceptance_length),
        tokens_per_second=measured.tokens_per_second if measured.at else None,
        tpot_milliseconds=number(measured.tpot_milliseconds),
        gain_percent=number(measured.gain_percent),
        measured_at=measured.at or None,
        tuning=status.tuning.summary or None,
        last_decision=_decision(decision) if decision else None,
        last_decision_at=decision.at if decision else None,
        alarms=standing(status, now_s),
        training=_training(status),
        unwatched_since=unwatched_since(status, now_s) or None,
    )


def _schedule(ranges: Sequence[Sequence[int]]) -> tuple[DepthOfBatches, ...] | None:
    """None: there is none, or not one of ranges."""
    if not ranges or any(len(each) != len(DepthOfBatches.model_fields) for each in ranges):
        return None
    return tuple(
        DepthOfBatches(first_batch=first, last_batch=last, depth=depth)
        for first, last, depth in ranges
    )


@app.command()
def top_command(
    *,
    namespace: Namespace = "",
    all_namespaces: AllNamespaces = False,
    watch: Watch = False,
    output: AsOutput = Output.TEXT,
    context: Context = "",
    kubeconfig: Kubeconfig = None,
) -> None:
    """Show all resources: depth, speed, gain, what was decided last, and alarms.

    SpeculationTuners are among them, as tuner/NAME, with the level of their engines. A kind that
    you may not list is left out, and named on stderr.

    Example: fathom top -n llm
    """
    refuse_watched_document(watch=watch, output=output)
    where = chosen_namespace(
        namespace, everywhere=all_namespaces, context=context, kubeconfig=kubeconfig
    )

    async def read(kube: KubePort) -> Listed:
        return await read_all(kube, where)

    def draw(listed: Listed) -> RenderableType:
        if not listed.found:
            return Text(no_resource(where))
        return top_table(listed.found, SystemClock().now_s(), with_namespace=not where)

    if watch:
        watch_cluster(
            read,
            lambda listed: Group(draw(listed), *map(Text, left_out(listed))),
            context=context,
            kubeconfig=kubeconfig,
        )
        return
    listed = from_cluster(read, context=context, kubeconfig=kubeconfig)
    if output is Output.TEXT:
        print_whole(Console(), draw(listed))
    else:
        typer.echo(written(top_list(listed.found, SystemClock().now_s()), output))
    for sentence in left_out(listed):
        typer.echo(sentence, err=True)
