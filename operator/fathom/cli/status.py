"""`fathom status`: how SpeculativeDeployments are. Unknown is not zero."""

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final, Literal

import typer
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from fathom.adapters.ports import KubePort, SystemClock
from fathom.api.status import ReportedStatus, SpeculativeDeploymentStatus
from fathom.api.tuner import SpeculationTunerStatus
from fathom.cli.arguments import OptionalName, asked_for
from fathom.cli.cluster import AnyReported, Listed, read_all, read_reported
from fathom.cli.deployment_checks import TRAINING, deployment_checks
from fathom.cli.documents import (
    AsOutput,
    Document,
    Output,
    Part,
    ResourceKind,
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
    first_of,
    from_cluster,
    left_out,
    no_resource,
    print_whole,
    refuse,
    refuse_watched_document,
    watch_cluster,
)
from fathom.cli.resources import REFUSED
from fathom.cli.status_checks import CheckState, Given, StatusCheck, operator_check, tuner_checks
from fathom.cluster.kinds import RESOURCE_KINDS, ObjectKey
from fathom.health import UNREADABLE, Headline, Wellness, unwatched_since, wellness_in

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


_MARKS: Final[Mapping[CheckState, tuple[str, str]]] = MappingProxyType(
    {
        CheckState.OK: ("✔", "green"),
        CheckState.WARNING: ("!", "yellow"),
        CheckState.FAILED: ("✘", "red"),
        CheckState.UNKNOWN: ("·", "dim"),
    }
)


class StatusReport(Part):
    """How one resource is."""

    namespace: str
    name: str
    resource_kind: ResourceKind
    well: bool
    """Well, or paused: `fathom status` ends with 0."""
    headline: Headline
    cause: str
    """Why it is not well, and what to do; empty: it is."""
    checks: tuple[StatusCheck, ...]

    @property
    def key(self) -> ObjectKey:
        (kind,) = (each for each in RESOURCE_KINDS if each.kind == self.resource_kind)
        return ObjectKey(self.namespace, self.name, kind)


class StatusList(Document):
    """The document of `fathom status`."""

    kind: Literal["StatusList"] = "StatusList"
    items: tuple[StatusReport, ...]


def wellness_of(reported: AnyReported, now_s: float) -> Wellness:
    """Judge what a resource's own status says of it.

    Args:
        reported: the resource as it was read.
        now_s: Unix seconds.
    """
    if reported.unreadable:
        return Wellness(Headline.UNKNOWN, UNREADABLE)
    meta = reported.metadata
    return wellness_in(reported.status, name=meta.name, newest=meta.generation, now_s=now_s)


def status_report(reported: AnyReported, now_s: float) -> StatusReport:
    """The verdict on a resource, and every check of it.

    Args:
        reported: the resource as it was read.
        now_s: Unix seconds.
    """
    wellness, meta = wellness_of(reported, now_s), reported.metadata
    return StatusReport(
        namespace=meta.namespace,
        name=meta.name,
        resource_kind=resource_kind(reported.kind),
        well=wellness.is_well,
        headline=wellness.headline,
        cause=wellness.cause,
        checks=tuple(_checks(reported, wellness.cause, now_s)),
    )


def _checks(reported: AnyReported, cause: str, now_s: float) -> Iterator[StatusCheck]:
    status, meta = reported.status or ReportedStatus(), reported.metadata
    given = Given(
        name=meta.name,
        namespace=meta.namespace,
        generation=meta.generation,
        status=status,
        cause=cause,
        now_s=now_s,
    )
    yield operator_check(given, unreadable=reported.unreadable)
    past = bool(unwatched_since(status, now_s))
    for each in _of_status(given) if status.conditions else ():
        # What was fine then may not be so now.
        forgotten = past and each.state is CheckState.OK
        yield each.model_copy(update={"state": CheckState.UNKNOWN}) if forgotten else each
    if reported.hides_training and not reported.unreadable:
        text = f"not known. {UNREADABLE}"
        yield StatusCheck(subject=TRAINING, state=CheckState.UNKNOWN, text=text)


def _of_status(given: Given[ReportedStatus]) -> Iterator[StatusCheck]:
    match given.status:
        case SpeculativeDeploymentStatus() as status:
            yield from deployment_checks(given.of(status))
        case SpeculationTunerStatus() as status:
            yield from tuner_checks(given.of(status))


def status_view(report: StatusReport) -> Group:
    """A headline with the cause, and a line for each check."""
    table = Table(box=None, show_header=False, padding=(0, 1, 0, 0))
    for style in ("", "bold", ""):
        table.add_column(no_wrap=bool(style), style=style)
    for each in report.checks:
        mark, style = _MARKS[each.state]
        hint = f"\n→ {each.hint}" if each.hint else ""
        table.add_row(Text(mark, style=style), each.subject, Text(f"{each.text}{hint}"))
    return Group(_headline(report), table)


def _headline(report: StatusReport) -> Text:
    style = "green" if report.well else "yellow"
    cause = f": {report.cause}" if report.cause else "."
    return Text.assemble((str(report.key), "bold"), " ", (report.headline, style), cause)


def list_view(reports: Sequence[StatusReport]) -> Table:
    """A line for each resource."""
    table = Table(box=None, show_header=False, padding=(0, 1, 0, 0))
    for each in reports:
        state = CheckState.OK if each.well else CheckState.WARNING
        failed = each.headline is Headline.NOT_WELL
        mark, style = _MARKS[CheckState.FAILED if failed else state]
        table.add_row(Text(mark, style=style), _headline(each))
        if waiting := _waiting(each):
            table.add_row("", Text(waiting))
    return table


def _waiting(report: StatusReport) -> str:
    """That a training waits for a person; empty: none does."""
    waits = any(
        each.subject == TRAINING and each.state is CheckState.WARNING for each in report.checks
    )
    command = f"fathom status {report.name} -n {report.namespace}"
    return f"→ A training waits for a person: `{command}` says for what." if waits else ""


@app.command()
def status_command(
    name: OptionalName = "",
    *,
    namespace: Namespace = "",
    all_namespaces: AllNamespaces = False,
    watch: Watch = False,
    output: AsOutput = Output.TEXT,
    context: Context = "",
    kubeconfig: Kubeconfig = None,
) -> None:
    """Say whether a resource is well, at which depth it runs and why, and what to do.

    Without NAME: a line for each SpeculativeDeployment and each SpeculationTuner of the namespace.

    Reads these and nothing else; a kind that you may not list is left out, and named on stderr.
    Exit codes: 0, all are well, or paused; 1, one is not, or not yet, or an alarm is active; 2,
    there is none, or it cannot be read.

    Example: fathom status kimi-k2 -n llm

    Example: fathom status tuner/qwen -n llm
    """
    if name and all_namespaces:
        refuse("Give either a NAME or -A.")
    refuse_watched_document(watch=watch, output=output)
    where = chosen_namespace(
        namespace, everywhere=all_namespaces, context=context, kubeconfig=kubeconfig
    )

    async def read(kube: KubePort) -> tuple[tuple[StatusReport, ...], Listed]:
        if not name:
            listed = await read_all(kube, where)
        else:
            _, one = await first_of(kube, asked_for(name), where, read_reported)
            listed = Listed((one,))
        now_s = SystemClock().now_s()
        return tuple(status_report(each, now_s) for each in listed.found), listed

    def draw(reports: Sequence[StatusReport], listed: Listed) -> RenderableType:
        if not reports:
            return Text(no_resource(where, listed))
        return status_view(reports[0]) if name else list_view(reports)

    if watch:
        watch_cluster(
            read,
            lambda found: Group(draw(*found), *map(Text, left_out(found[1]))),
            context=context,
            kubeconfig=kubeconfig,
        )
        return
    reports, listed = from_cluster(read, context=context, kubeconfig=kubeconfig)
    if output is not Output.TEXT:
        typer.echo(written(StatusList(items=reports), output))
    else:
        drawn = draw(reports, listed)
        Console().print(drawn) if name else print_whole(Console(), drawn)
    for sentence in left_out(listed):
        typer.echo(sentence, err=True)
    if not reports:
        # A namespace that is misspelt must not look well.
        raise typer.Exit(REFUSED)
    raise typer.Exit(0 if all(each.well for each in reports) else 1)
