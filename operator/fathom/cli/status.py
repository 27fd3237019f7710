"""`fathom status`: how SpeculativeDeployments are. Unknown is not zero."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final, Literal

import typer
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from fathom import __version__
from fathom.adapters.ports import KubePort, SystemClock
from fathom.api.conditions import AlarmKind, ConditionType, Reason
from fathom.api.status import Condition
from fathom.cli.cluster import Reported, read_all, read_reported
from fathom.cli.documents import AsOutput, Document, Output, Part, written
from fathom.cli.options import (
    AllNamespaces,
    Context,
    Kubeconfig,
    Namespace,
    OptionalName,
    Watch,
    chosen_namespace,
    from_cluster,
    no_resource,
    print_whole,
    refuse,
    refuse_watched_document,
    watch_cluster,
)
from fathom.cli.resources import REFUSED
from fathom.cli.status_checks import CheckState, StatusCheck, holds, status_checks
from fathom.cluster.kinds import ObjectKey
from fathom.resource import unwatched_in_words, unwatched_since

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


class Headline(StrEnum):
    """As a headline ends."""

    WELL = "is well"
    ALARMED = "serves, and an alarm is active"
    PAUSED = "is paused"
    UNDER_WAY = "is changing"
    NOT_WELL = "is not well"
    UNKNOWN = "is not known to be well"


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
    well: bool
    """Well, or paused: `fathom status` ends with 0."""
    headline: Headline
    cause: str
    """Why it is not well, and what to do; empty: it is."""
    checks: tuple[StatusCheck, ...]

    @property
    def key(self) -> ObjectKey:
        return ObjectKey(self.namespace, self.name)


class StatusList(Document):
    """The document of `fathom status`."""

    kind: Literal["StatusList"] = "StatusList"
    items: tuple[StatusReport, ...]


@dataclass(frozen=True, slots=True)
class Wellness:
    headline: Headline
    cause: str = ""
    """What happens, or what to do, in sentences; empty: nothing."""

    @property
    def is_well(self) -> bool:
        """Whether no person has to act."""
        return self.headline in {Headline.WELL, Headline.PAUSED}


def wellness_of(reported: Reported, now_s: float) -> Wellness:
    """Judge what a resource's own status says of it.

    Args:
        reported: the resource as it was read.
        now_s: Unix seconds.
    """
    if reported.status and (since := unwatched_since(reported.status, now_s)):
        return Wellness(Headline.UNKNOWN, unwatched_in_words(since))
    found = (judge(reported) for judge in _JUDGES)
    return next((each for each in found if each is not None), Wellness(Headline.WELL))


def _not_reported(reported: Reported) -> Wellness | None:
    status, newest = reported.status, reported.metadata.generation
    if reported.unreadable:
        return Wellness(
            Headline.UNKNOWN,
            f"This fathom ({__version__}) cannot read its status: another release wrote it. Use "
            "the fathom of the operator's release, which `fathom version` shows.",
        )
    if status is None or not status.conditions:
        return Wellness(
            Headline.UNKNOWN,
            "No operator has reported on it yet. Does one run, and does it watch this namespace?",
        )
    if status.observed_generation < newest:
        return Wellness(
            Headline.UNKNOWN,
            f"The operator has reported on generation {status.observed_generation} and not yet on "
            f"{newest}, the newest. If that lasts for a minute: does it run?",
        )
    return None


def _degraded(reported: Reported) -> Wellness | None:
    degraded = reported.condition(ConditionType.DEGRADED)
    if degraded is None or not holds(degraded):
        return None
    again = {Reason.ROLLED_BACK, Reason.WEIGHTS_NOT_FETCHED}
    hint = (
        f" `kubectl fathom retry {reported.metadata.name}` tries it once more."
        if degraded.reason in again
        else ""
    )
    return Wellness(Headline.NOT_WELL, f"{degraded.reason}: {degraded.message}{hint}")


def _progressing(reported: Reported) -> Wellness | None:
    progressing = reported.condition(ConditionType.PROGRESSING)
    if progressing is None:
        return None
    if progressing.reason == Reason.ROLLOUT_BLOCKED:
        return Wellness(Headline.NOT_WELL, f"{progressing.reason}: {progressing.message}")
    return Wellness(Headline.UNDER_WAY, progressing.message) if holds(progressing) else None


def _not_ready(reported: Reported) -> Wellness | None:
    ready = reported.condition(ConditionType.READY)
    if ready is not None and (holds(ready) or ready.reason == Reason.SCALED_TO_ZERO):
        return None
    return Wellness(Headline.NOT_WELL, ready.message if ready else "It says nothing of Ready.")


def _alarmed(reported: Reported) -> Wellness | None:
    alarms = [each.message for each in _alarms(reported)]
    return Wellness(Headline.ALARMED, " ".join(alarms)) if alarms else None


def _paused(reported: Reported) -> Wellness | None:
    progressing = reported.condition(ConditionType.PROGRESSING)
    paused = progressing is not None and progressing.reason == Reason.PAUSED
    return Wellness(Headline.PAUSED) if paused else None


_JUDGES: Final[tuple[Callable[[Reported], Wellness | None], ...]] = (
    _not_reported,
    _degraded,
    _progressing,
    _not_ready,
    _alarmed,
    _paused,
)
"""In this order: the first that answers is the verdict."""


def _alarms(reported: Reported) -> Iterator[Condition]:
    found = (reported.condition(kind) for kind in AlarmKind)
    return (each for each in found if each is not None and holds(each))


def status_report(reported: Reported, now_s: float) -> StatusReport:
    """The verdict on a resource, and every check of it.

    Args:
        reported: the resource as it was read.
        now_s: Unix seconds.
    """
    wellness, meta = wellness_of(reported, now_s), reported.metadata
    return StatusReport(
        namespace=meta.namespace,
        name=meta.name,
        well=wellness.is_well,
        headline=wellness.headline,
        cause=wellness.cause,
        checks=tuple(status_checks(reported, wellness.cause, now_s)),
    )


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


def list_view(reports: Sequence[StatusReport], namespace: str) -> RenderableType:
    """A line for each resource of a namespace; empty: of all of them."""
    if not reports:
        return Text(no_resource(namespace))
    table = Table(box=None, show_header=False, padding=(0, 1, 0, 0))
    for each in reports:
        state = CheckState.OK if each.well else CheckState.WARNING
        failed = each.headline is Headline.NOT_WELL
        mark, style = _MARKS[CheckState.FAILED if failed else state]
        table.add_row(Text(mark, style=style), _headline(each))
    return table


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
    """Say whether a SpeculativeDeployment is well, at which depth it runs and why, and what to do.

    Without NAME: a line for each SpeculativeDeployment of the namespace.

    Reads SpeculativeDeployments and nothing else. Exit codes: 0, all are well, or paused; 1, one is
    not, or not yet, or an alarm is active; 2, there is none, or it cannot be read.

    Example: fathom status kimi-k2 -n llm
    """
    if name and all_namespaces:
        refuse("Give either a NAME or -A.")
    refuse_watched_document(watch=watch, output=output)
    where = chosen_namespace(
        namespace, everywhere=all_namespaces, context=context, kubeconfig=kubeconfig
    )

    async def read(kube: KubePort) -> tuple[StatusReport, ...]:
        found = await _one(kube, ObjectKey(where, name)) if name else await read_all(kube, where)
        now_s = SystemClock().now_s()
        return tuple(status_report(each, now_s) for each in found)

    def draw(reports: Sequence[StatusReport]) -> RenderableType:
        return status_view(reports[0]) if name else list_view(reports, where)

    if watch:
        watch_cluster(read, draw, context=context, kubeconfig=kubeconfig)
        return
    reports = from_cluster(read, context=context, kubeconfig=kubeconfig)
    if output is Output.TEXT:
        Console().print(draw(reports)) if name else print_whole(Console(), draw(reports))
    else:
        typer.echo(written(StatusList(items=reports), output))
    if not reports:
        # A namespace that is misspelt must not look well.
        raise typer.Exit(REFUSED)
    raise typer.Exit(0 if all(each.well for each in reports) else 1)


async def _one(kube: KubePort, key: ObjectKey) -> tuple[Reported, ...]:
    found = await read_reported(kube, key)
    if found is None:
        refuse(f"There is no SpeculativeDeployment {key}.")
    return (found,)
