"""One screen that says how a SpeculativeDeployment is. What is unknown is not shown as zero."""

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from fathom.api.conditions import ConditionType
from fathom.api.status import SpeculativeDeploymentStatus
from fathom.core.cluster.kinds import ObjectKey
from fathom.core.reporting.reading import NOT_MEASURED, gained_in_words, signed
from fathom.inspect.cluster import Reported
from fathom.inspect.reported.wellness import Wellness


def status_view(key: ObjectKey, reported: Reported, wellness: Wellness) -> Group:
    """A headline, and a row for each thing that a person asks.

    Args:
        key: of the resource.
        reported: it, as it was read.
        wellness: what was made of that.
    """
    style = "green" if wellness.is_well else "yellow"
    headline = Text.assemble((str(key), "bold"), " ", (f"{wellness.headline}.", style))
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(no_wrap=True, style="bold")
    table.add_column()
    parts: list[RenderableType] = [headline, table]
    for title, text in _rows(reported.status or SpeculativeDeploymentStatus()):
        table.add_row(title, Text(text))
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
        else f"room for at least {measured.headroom_tokens_per_second} more",
        f"at {measured.at}",
    )


def _gain(status: SpeculativeDeploymentStatus) -> str:
    gain = status.measured.gain_percent
    return f"{signed(gain)} % over your own depth, tokens" if gain else NOT_MEASURED


def _joined(*parts: str) -> str:
    return ", ".join(part for part in parts if part)
