"""`fathom top`. What is unknown is a dash: it is not zero."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, Literal

import typer
from rich.cells import cell_len
from rich.console import Console, Group, JustifyMethod, RenderableType
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
from fathom.health import UNKNOWN, UNREADABLE, is_measured_now, standing, unwatched_since
from fathom.times import ago
from fathom.training.record import AWAITS_PERSON

_COLUMNS: Final[Mapping[str, JustifyMethod]] = MappingProxyType(
    {
        **dict.fromkeys(("NAMESPACE", "NAME", "ALARMS"), "left"),
        "READY": "right",
        "LEVEL": "left",
        **dict.fromkeys(("DEPTH", "ACCEPT", "TOK/S", "TPOT", "GAIN", "MEASURED"), "right"),
        **dict.fromkeys(("TUNING", "LAST DECISION"), "left"),
    }
)
"""In order. MEASURED says when something was measured: without traffic that is long ago, and those
before it are not known now."""
_LEFT_OUT_FIRST: Final = (
    *("LAST DECISION", "TUNING", "MEASURED", "TPOT", "ACCEPT", "GAIN", "TOK/S", "DEPTH"),
    *("LEVEL", "READY"),
)
"""Columns that a narrow window is without, in this order: what a person has to act on stays."""
_LEAST_OF_DECISION: Final = 24
"""Characters of a line of LAST DECISION, which wraps."""
_GAP: Final = 2
"""Blanks between two columns."""
_Row = Mapping[str, Text]
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
    unreadable: bool
    """Whether another release wrote its status, so that alarms or a training are not known."""


class TopList(Document):
    """The document of `fathom top`."""

    kind: Literal["TopList"] = "TopList"
    items: tuple[TopRow, ...]


def top_table(
    listed: Sequence[AnyReported],
    now_s: float,
    *,
    with_namespace: bool,
    width: int | None = None,
) -> Table:
    """One row per resource.

    Args:
        listed: the resources.
        now_s: the moment, in Unix seconds.
        with_namespace: whether they may be of several.
        width: characters that there are; None: as many as it takes.
    """
    with_level = any(each.kind == SPECULATION_TUNER for each in listed)
    without = {"NAMESPACE": not with_namespace, "LEVEL": not with_level}
    columns = [each for each in _COLUMNS if not without.get(each)]
    rows = [_cells(each, now_s, between=", ") for each in listed]
    wide = width is None or _width_of(columns, rows) <= width
    if width is not None and not wide:
        # Below each other, alarms are as wide as the longest one.
        rows = [_cells(each, now_s, between=",\n") for each in listed]
        for column in _LEFT_OUT_FIRST:
            if _width_of(columns, rows) <= width:
                break
            columns = [each for each in columns if each != column]
        wide = _width_of(columns, rows) <= width
    table = Table(box=None, pad_edge=False)
    # What still finds no room is folded: a name or an alarm that is cut says something else.
    shares = {} if wide or width is None else _shares(columns, rows, width)
    for column in columns:
        table.add_column(
            column,
            justify=_COLUMNS[column],
            no_wrap=column != "LAST DECISION" and not shares,
            overflow="fold",
            max_width=shares.get(column),
        )
    for row in rows:
        table.add_row(*(row[each] for each in columns))
    return table


def _shares(columns: Sequence[str], rows: Sequence[_Row], width: int) -> Mapping[str, int]:
    """Characters of each column where not all have as many as they need: those that need few do."""
    needs, left = _widths(columns, rows), width - _GAP * (len(columns) - 1)
    shares = {}
    for taken, column in enumerate(sorted(columns, key=lambda each: needs[each])):
        shares[column] = max(1, min(needs[column], left // (len(columns) - taken)))
        left -= shares[column]
    return shares


def _widths(columns: Sequence[str], rows: Sequence[_Row]) -> dict[str, int]:
    return {
        each: max([cell_len(each), *(_longest_line(row[each]) for row in rows)]) for each in columns
    }


def _width_of(columns: Sequence[str], rows: Sequence[_Row]) -> int:
    """Characters that they need at least."""
    widths = _widths(columns, rows)
    if "LAST DECISION" in widths:
        widths["LAST DECISION"] = min(widths["LAST DECISION"], _LEAST_OF_DECISION)
    return sum(widths.values()) + _GAP * (len(columns) - 1)


def _longest_line(cell: Text) -> int:
    return max(map(cell_len, cell.plain.split("\n")))


def _level(status: ReportedStatus) -> Level | None:
    return status.level if isinstance(status, SpeculationTunerStatus) else None


def _cells(reported: AnyReported, now_s: float, *, between: str) -> _Row:
    status = reported.status or ReportedStatus()
    alarms = standing(status, now_s)
    measured, decision = status.measured, status.tuning.last_decision
    # What was measured last stays in the status; only MEASURED, at its side, says when.
    of_now = measured if is_measured_now(status, now_s) else MeasuredStatus()
    tpot, rate = of_now.tpot_milliseconds, of_now.tokens_per_second
    cells = {
        "NAMESPACE": reported.key.namespace,
        "NAME": reported.typed,
        "READY": status.of_all,
        "LEVEL": _level(status),
        "DEPTH": status.depth.summary,
        "ACCEPT": of_now.acceptance_length,
        "TOK/S": "" if rate is None else str(rate),
        "TPOT": f"{tpot} ms" if tpot else "",
        "GAIN": f"{of_now.gain_percent}%" if of_now.gain_percent else "",
        "MEASURED": ago(measured.at, now_s),
        "TUNING": status.tuning.summary,
        "LAST DECISION": _decision(decision) if decision else "",
    }
    attention = between.join((*alarms, *_waiting(status), *_unreadable(reported))) or UNKNOWN
    return {
        **{column: Text(cell or UNKNOWN) for column, cell in cells.items()},
        "ALARMS": Text(attention, style="red" if alarms else ""),
    }


def _training(status: ReportedStatus) -> TrainingPhase | None:
    found = status.training if isinstance(status, SpeculativeDeploymentStatus) else None
    return found.phase if found else None


def _waiting(status: ReportedStatus) -> tuple[str, ...]:
    """A training that waits for a person: it is no alarm, and is shown after those."""
    phase = _training(status)
    return (f"Training/{phase}",) if phase in AWAITS_PERSON else ()


def _unreadable(reported: AnyReported) -> tuple[str, ...]:
    """What another release wrote into its status, as far as that hides alarms or a training."""
    if reported.unreadable:
        return ("Unreadable",)
    return ("Training/Unreadable",) if reported.hides_training else ()


def not_shown(listed: Listed) -> tuple[str, ...]:
    """A sentence for each kind that may not be listed, and one for what another release wrote."""
    unreadable = any(map(_unreadable, listed.found))
    return (*left_out(listed), *((UNREADABLE,) if unreadable else ()))


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
        unreadable=bool(_unreadable(reported)),
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
    """Show all resources: alarms, depth, speed, gain, and what was decided last.

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
            return Text(no_resource(where, listed))
        console, now_s = Console(), SystemClock().now_s()
        width = console.width if console.is_terminal else None
        return top_table(listed.found, now_s, with_namespace=not where, width=width)

    if watch:
        watch_cluster(
            read,
            lambda listed: Group(draw(listed), *map(Text, not_shown(listed))),
            context=context,
            kubeconfig=kubeconfig,
        )
        return
    listed = from_cluster(read, context=context, kubeconfig=kubeconfig)
    if output is Output.TEXT:
        print_whole(Console(), draw(listed))
    else:
        typer.echo(written(top_list(listed.found, SystemClock().now_s()), output))
    for sentence in not_shown(listed):
        typer.echo(sentence, err=True)
