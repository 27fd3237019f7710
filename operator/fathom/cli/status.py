"""`fathom status`: one screen that says how a SpeculativeDeployment is. Unknown is not zero."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import typer
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from fathom.adapters.ports import SystemClock
from fathom.api.choices import TuningMode
from fathom.api.conditions import AlarmKind, ConditionStatus, ConditionType, Reason
from fathom.api.status import Condition, SpeculativeDeploymentStatus
from fathom.cli.cluster import Reported, read_reported
from fathom.cli.options import Context, Kubeconfig, Name, Namespace, on_resource
from fathom.cluster.kinds import ObjectKey
from fathom.resource import (
    NOT_MEASURED,
    gained_in_words,
    signed,
    unwatched_in_words,
    unwatched_since,
)

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


class Headline(StrEnum):
    """As a headline ends."""

    WELL = "is well"
    ALARMED = "serves, and an alarm is active"
    PAUSED = "is paused"
    UNDER_WAY = "is on its way"
    NOT_WELL = "is not well"
    UNKNOWN = "is not known to be well"


@dataclass(frozen=True, slots=True)
class Wellness:
    headline: Headline
    next: str
    """What happens, or what to do, in sentences."""

    @property
    def is_well(self) -> bool:
        """Whether nobody has to look."""
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
    return next(each for each in found if each is not None)


def _not_reported(reported: Reported) -> Wellness | None:
    status, newest = reported.status, reported.metadata.generation
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
    if degraded is None or not _holds(degraded):
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
    if progressing.reason == Reason.PAUSED:
        resume = f"`kubectl fathom resume {reported.metadata.name}` ends the pause."
        return Wellness(Headline.PAUSED, resume)
    return Wellness(Headline.UNDER_WAY, progressing.message) if _holds(progressing) else None


def _not_ready(reported: Reported) -> Wellness | None:
    ready = reported.condition(ConditionType.READY)
    if ready is not None and (_holds(ready) or ready.reason == Reason.SCALED_TO_ZERO):
        return None
    return Wellness(Headline.NOT_WELL, ready.message if ready else "It says nothing of Ready.")


def _alarmed(reported: Reported) -> Wellness | None:
    found = (reported.condition(kind) for kind in AlarmKind)
    alarms = [each.message for each in found if each is not None and _holds(each)]
    return Wellness(Headline.ALARMED, " ".join(alarms)) if alarms else None


def _well(reported: Reported) -> Wellness:
    tuning = reported.condition(ConditionType.TUNING)
    status, following = reported.status, "Nothing."
    if status is not None and status.warnings:
        following = f"Its spec has warnings: {' '.join(status.warnings)}"
    elif tuning is not None and not _holds(tuning) and tuning.reason != Reason.STATIC:
        following = tuning.message
    elif status is not None and status.tuning.summary.startswith(f"{TuningMode.ADVISE}/"):
        following = f"`kubectl fathom advise {reported.metadata.name}` says which depth to write."
    return Wellness(Headline.WELL, following)


_JUDGES: Final[tuple[Callable[[Reported], Wellness | None], ...]] = (
    _not_reported,
    _degraded,
    _progressing,
    _not_ready,
    _alarmed,
    _well,
)
"""In this order: the first that answers is the verdict."""


def _holds(condition: Condition) -> bool:
    return condition.status is ConditionStatus.TRUE


def status_view(key: ObjectKey, reported: Reported, wellness: Wellness) -> Group:
    """A headline with the cause, and a row for each thing that a person asks.

    Args:
        key: of the resource.
        reported: it, as it was read.
        wellness: what was made of that.
    """
    style = "green" if wellness.is_well else "yellow"
    cause = "." if wellness.is_well else f": {wellness.next}"
    headline = Text.assemble((str(key), "bold"), " ", (wellness.headline, style), cause)
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(no_wrap=True, style="bold")
    table.add_column()
    parts: list[RenderableType] = [headline, table]
    for title, text in _rows(reported.status or SpeculativeDeploymentStatus()):
        table.add_row(title, Text(text))
    if wellness.is_well:
        table.add_row("next", Text(wellness.next))
    return Group(*parts)


def _rows(status: SpeculativeDeploymentStatus) -> Iterator[tuple[str, str]]:
    if not status.conditions:
        return
    yield "replicas", _joined(f"{status.ready} ready", _engine(status))
    yield "depth", _depth(status)
    yield from _why(status)
    yield "traffic", _traffic(status)
    yield "gain", _gain(status)
    if status.gained is not None:
        yield "gained", gained_in_words(status.gained)
    if status.rollout is not None and status.rollout.stage:
        rollout = status.rollout
        yield "rollout", _joined(f"{rollout.stage} since {rollout.since}", rollout.message)
    if status.left_out:
        yield "not made", " ".join(status.left_out)


def _engine(status: SpeculativeDeploymentStatus) -> str:
    version = f"vLLM {status.engine.version}" if status.engine.version else ""
    return _joined(version, status.draft.family)


def _depth(status: SpeculativeDeploymentStatus) -> str:
    depth = status.depth
    if not depth.summary:
        return "not known"
    if not depth.generation:
        return depth.summary
    applied = f"in force on {depth.applied_replicas} of {status.ready_replicas} ready replicas"
    return _joined(depth.summary, applied, f"since {depth.since}" if depth.since else "")


def _why(status: SpeculativeDeploymentStatus) -> Iterator[tuple[str, str]]:
    for each in status.conditions:
        if each.type is ConditionType.PROGRESSING:
            yield "state", f"{each.reason}: {each.message}"
        if each.type is ConditionType.TUNING:
            yield "why", f"{status.tuning.summary or each.reason}: {each.message}"


def _traffic(status: SpeculativeDeploymentStatus) -> str:
    measured = status.measured
    if not measured.at:
        return NOT_MEASURED
    return _joined(
        f"{measured.tokens_per_second} tokens per second",
        f"batch {measured.mean_batch}" if measured.mean_batch else "",
        f"acceptance length {measured.acceptance_length}" if measured.acceptance_length else "",
        f"{measured.tpot_milliseconds} ms per output token" if measured.tpot_milliseconds else "",
        ""
        if measured.headroom_tokens_per_second is None
        else f"capacity for at least {measured.headroom_tokens_per_second} more",
        f"at {measured.at}",
    )


def _gain(status: SpeculativeDeploymentStatus) -> str:
    gain = status.measured.gain_percent
    return f"{signed(gain)} % over your own depth, tokens" if gain else NOT_MEASURED


def _joined(*parts: str) -> str:
    return ", ".join(part for part in parts if part)


@app.command()
def status_command(
    name: Name,
    *,
    namespace: Namespace = "",
    context: Context = "",
    kubeconfig: Kubeconfig = None,
) -> None:
    """Say whether one is well, at which depth it runs and why, and what comes next.

    Reads the resource alone. Exit codes: 0, it is well, or paused; 1, not so, or not yet; 2, it
    cannot be read.
    """
    key, reported = on_resource(
        name, read_reported, namespace=namespace, context=context, kubeconfig=kubeconfig
    )
    wellness = wellness_of(reported, SystemClock().now_s())
    Console().print(status_view(key, reported, wellness))
    raise typer.Exit(0 if wellness.is_well else 1)
