"""`fathom explain` and `fathom advise`: why each batch has its depth, and which depth to write."""

from collections.abc import Iterable, Iterator
from math import expm1
from typing import Final

import typer
from rich.console import Console, Group, JustifyMethod, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from fathom.adapters.ports import SystemClock
from fathom.api.choices import TuningMode
from fathom.api.conditions import AlarmKind, ConditionStatus, ConditionType
from fathom.api.status import ReportedStatus, SpeculativeDeploymentStatus
from fathom.api.tuner import BreakEven
from fathom.cli.arguments import AnyName, Name, asked_for
from fathom.cli.cluster import read_resource, read_subject
from fathom.cli.documents import AsOutput, Output, written
from fathom.cli.explanation_document import explanation_report
from fathom.cli.history import decisions, history_table
from fathom.cli.options import (
    Context,
    Kubeconfig,
    Namespace,
    on_either,
    on_resource,
    refuse_problems,
    valid,
)
from fathom.health import UNREADABLE
from fathom.page.subject import AnySubject, Subject, TunerSubject, explanation_of
from fathom.times import ago
from fathom.tuning.depth_to_write import DepthToWrite, depth_to_write
from fathom.tuning.estimate.acceptance_by_context import CONTEXT_COLUMNS, ContextAcceptance
from fathom.tuning.explanation import BucketExplanation, Explanation, PositionExplanation, Worth

_LITTLE: Final = 0.005
"""Shares below half a percent are shown as none."""
app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
advise_app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


def explanation_view(explanation: Explanation) -> Group:
    """All of it: tables first, then sentences."""
    return Group(*_parts(explanation))


def bullets(title: str, sentences: Iterable[str]) -> Iterator[RenderableType]:
    """A title and a sentence a line; nothing at all without sentences."""
    lines = tuple(sentences)
    if lines:
        yield Text(f"\n{title}", style="bold")
        for line in lines:
            yield Padding(Text(line), (0, 0, 0, 2))


def _parts(explanation: Explanation) -> Iterator[RenderableType]:
    if explanation.schedule:
        yield Text.assemble(
            ("Depth in force ", "bold"),
            ", ".join(
                f"{part.depth} at batch {part.first}-{part.last}" for part in explanation.schedule
            ),
            _since_when(explanation.generation),
        )
    if explanation.nothing:
        yield Text(f"\n{explanation.nothing}")
        if explanation.positions:
            yield Text()
            yield acceptance_table(explanation.positions)
        return
    yield Text()
    yield surface_table(explanation)
    if explanation.positions:  # else drafts are cut, and nobody knows which were verified
        yield acceptance_table(explanation.positions)
    if explanation.reference:
        yield Text(f"\n{explanation.reference}")
    if explanation.contexts:
        yield context_table(explanation.contexts)
    yield from bullets(
        "Why each batch has its depth",
        (f"{each.batches} at {each.depth}: {each.why}" for each in explanation.buckets),
    )
    yield from bullets("What it is unsure of", explanation.doubts)
    yield from bullets("What it would do next", [explanation.next_step])
    yield from bullets("What would change its mind", explanation.turning_points)
    yield from bullets("Alarms", map(str, explanation.alarms))
    for whom, apart in explanation.apart:
        yield Text(f"\nTuned apart: {whom}", style="bold")
        yield from _parts(apart)


def _since_when(generation: int) -> str:
    return f" (generation {generation})" if generation else " (as the engines were started)"


def surface_table(explanation: Explanation) -> Table:
    """Value per batch and depth, relative to the user's own depth."""
    title = f"Tokens per second by batch and depth, over depth {explanation.tokens}"
    table = Table(
        title=title,
        title_justify="left",
        caption="▶ in force   ~ predicted   ± one standard error   ? not measured",
        caption_justify="left",
        min_width=len(title) + 1,
    )
    table.add_column("batch", no_wrap=True)
    table.add_column("load", justify="right")
    for worth in explanation.buckets[0].worths:
        table.add_column(str(worth.depth), justify="right", no_wrap=True)
    for bucket in explanation.buckets:
        load = f"{bucket.share:.0%}" if bucket.share >= _LITTLE else "–"
        table.add_row(
            bucket.batches.removeprefix("batch "),
            load,
            *(_worth(each, bucket, explanation.tokens) for each in bucket.worths),
        )
    return table


def _worth(worth: Worth, bucket: BucketExplanation, tokens: int) -> Text:
    """Two lines: the value, and below it the error."""
    mark = "▶" if worth.depth == bucket.depth else ""
    style = "bold" if mark else ""
    gain = worth.gain
    if gain is None:
        return Text(f"{mark}?", style=style)
    if worth.depth == tokens:
        return Text(f"{mark}{0:.1%}", style=style)
    if not gain.measured:
        mark, style = f"{mark}~", style or "dim"
    return Text(f"{mark}{expm1(gain.mean):+.1%}\n±{gain.sd:.1%}", style=style)


def acceptance_table(positions: Iterable[PositionExplanation]) -> Table:
    """Acceptance by draft position."""
    table = Table(title="Acceptance by position", title_justify="left")
    table.add_column("position", no_wrap=True)
    columns = tuple(positions)
    for each in columns:
        table.add_column(str(each.position), justify="right", no_wrap=True)

    def row(name: str, values: Iterable[str]) -> None:
        cells = (
            Text(value if each.measured else f"~{value}", style="" if each.measured else "dim")
            for value, each in zip(values, columns, strict=True)
        )
        table.add_row(name, *cells)

    row("accepted", (f"{each.acceptance:.0%}" for each in columns))
    errors = [each.error for each in columns if each.error is not None]
    if len(errors) == len(columns):
        row("±", (f"{each:.0%}" for each in errors))
    row("survival", (f"{each.survival:.2f}" for each in columns))
    row("acceptance length", (f"{each.acceptance_length:.2f}" for each in columns))
    return table


def context_table(contexts: Iterable[ContextAcceptance]) -> Table:
    """Acceptance by the context of requests."""
    table = Table(
        title="Acceptance by context",
        title_justify="left",
        caption="Tokens of a request before the step. Other contexts are often other text, too.",
        caption_justify="left",
    )
    for column in CONTEXT_COLUMNS:
        justify: JustifyMethod = "left" if column == CONTEXT_COLUMNS[0] else "right"
        table.add_column(column, justify=justify, no_wrap=True)
    for each in contexts:
        table.add_row(*each.row)
    return table


def break_even_table(found: Iterable[BreakEven]) -> Table:
    """What each shallower depth keeps of a decode step's tokens."""
    table = Table(
        title="Break-even of a decode step, by acceptance alone",
        title_justify="left",
        caption="What it means for whole requests is not known.",
        caption_justify="left",
    )
    table.add_column("depth", no_wrap=True)
    table.add_column("keeps of the tokens", justify="right")
    table.add_column("pays if a step is shorter by over", justify="right")
    for each in found:
        keeps, pays = each.keeps_percent, each.pays_if_shorter_by_percent
        table.add_row(str(each.depth), f"{keeps} %", f"{pays} %")
    return table


@app.command()
def explain_command(
    name: AnyName,
    *,
    namespace: Namespace = "",
    output: AsOutput = Output.TEXT,
    context: Context = "",
    kubeconfig: Kubeconfig = None,
) -> None:
    """Say what a tuner has measured, why each batch has its depth, and what it is unsure of.

    Of engines without Fathom's plugin it says acceptance by position, and the break-even of a step.

    Example: fathom explain kimi-k2 -n llm

    Example: fathom explain tuner/qwen -n llm
    """
    key, live = on_either(
        asked_for(name), read_subject, namespace=namespace, context=context, kubeconfig=kubeconfig
    )
    if live.problems:
        refuse_problems(key, live.problems)
    now_s = SystemClock().now_s()
    if output is not Output.TEXT:
        found, sentences = explanation_of(live, now_s), attention(live.status)
        typer.echo(written(explanation_report(live, found, sentences), output))
        return
    console = Console()
    for part in live_view(live, now_s):
        console.print(part)


def live_view(live: AnySubject, now_s: float) -> Iterator[RenderableType]:
    """All that is shown of one resource whose spec is not refused."""
    status = live.status
    tuner = "SpeculationTuner " if isinstance(live, TunerSubject) else ""
    yield Text.assemble(tuner, (live.key.name, "bold"), f": {live.tuned.asked}")
    yield from (Text(line) for line in _at_present(live, now_s))
    if (found := explanation_of(live, now_s)) is not None:
        yield explanation_view(found)
    if isinstance(live, TunerSubject) and live.status.break_even:
        yield Text()
        yield break_even_table(live.status.break_even)
    yield from bullets("What needs attention", attention(status))
    if status.tuning.history:
        yield Text("\nLast decisions", style="bold")
        yield history_table(tuple(decisions(status)), now_s)


def attention(status: ReportedStatus) -> Iterator[str]:
    """Conditions that are not as they should be; alarms are told by the explanation itself."""
    good: dict[ConditionType | AlarmKind, ConditionStatus] = {
        ConditionType.READY: ConditionStatus.TRUE,
        ConditionType.DEGRADED: ConditionStatus.FALSE,
    }
    for each in status.conditions:
        if each.status != good.get(each.type, each.status) and not isinstance(each.type, AlarmKind):
            yield f"{each.type}={each.status}, {each.reason}: {each.message}"
    for warning in status.warnings if isinstance(status, SpeculativeDeploymentStatus) else ():
        yield f"warning: {warning}"


def _at_present(live: AnySubject, now_s: float) -> Iterator[str]:
    status, measured = live.status, live.status.measured
    gain = f"{measured.gain_percent} %" if measured.gain_percent else "not known yet"
    if measured.at:
        yield (
            f"{measured.tokens_per_second} tokens per second, acceptance length "
            f"{measured.acceptance_length or 'unknown'}, gain over tokens "
            f"{gain} ({ago(measured.at, now_s)})"
        )
    if isinstance(live, Subject):
        yield from _of_engine(live)
    attached = status.condition(ConditionType.ATTACHED)
    for each in (attached, status.condition(ConditionType.TUNING)):
        # What is missing first, both say.
        if each is not None and (
            each is attached or not attached or each.reason != attached.reason
        ):
            yield f"{each.reason}: {each.message}"


def _of_engine(live: Subject) -> Iterator[str]:
    goals, engine = live.tuned.goals, live.status.engine
    if live.unreadable:
        yield UNREADABLE
    if goals is not None and goals.mode is TuningMode.STATIC:
        yield f"Mode Static: depth stays at {live.tuned.tokens}; nothing is tuned."
    elif not live.tuned.live:
        yield f"Depth cannot be changed live: {live.tuned.fixed}"
    elif engine.reason:
        yield f"Depth can be changed live: {engine.reason}"


@advise_app.command()
def advise_command(
    name: Name,
    *,
    namespace: Namespace = "",
    context: Context = "",
    kubeconfig: Kubeconfig = None,
) -> None:
    """Say which depth to write as spec.speculation.tokens, by what was measured. Writes nothing.

    One depth for all batches, over the load of the last minutes; and what mode Auto would aim at
    with one for each. In mode Advise nothing is tried, so most of it is predicted there.

    Example: fathom advise kimi-k2 -n llm
    """
    key, live = on_resource(
        name, read_resource, namespace=namespace, context=context, kubeconfig=kubeconfig
    )
    valid(key, live)
    for line in advice_lines(live, SystemClock().now_s()):
        typer.echo(line)


def advice_lines(live: Subject, now_s: float) -> Iterator[str]:
    """What is said of one resource whose spec is not refused."""
    tuned = live.tuned
    if tuned.settings is None or tuned.tokens is None:
        yield "Nothing is measured by depth in mode Static, or without drafting: nothing to advise."
        return
    found = depth_to_write(live.state, tuned.settings, live.document, now_s, live=tuned.live)
    if found is None:
        yield "Nothing was measured under traffic yet, so there is nothing to advise."
        return
    yield from _sentences(found, tuned.tokens)
    if not tuned.live:
        yield f"Depth is not live here, so only depths count that ran on some pod: {tuned.fixed}"


def _sentences(found: DepthToWrite, tokens: int) -> Iterator[str]:
    if found.depth == tokens:
        yield f"Keep spec.speculation.tokens: {tokens}. No other one is known to be faster."
    else:
        basis = "measured" if found.measured else "predicted in part"
        yield (
            f"Write spec.speculation.tokens: {found.depth} instead of {tokens}: {found.gain:+.1%} "
            f"tokens per second (95 %: {found.low:+.1%} to {found.high:+.1%}), {basis}, over the "
            "load of the last minutes."
        )
    if found.by_batch:
        yield f"With a depth for each batch, mode Auto would go {found.by_batch}."
