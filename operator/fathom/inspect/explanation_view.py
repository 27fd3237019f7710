"""An explanation as people read it."""

from collections.abc import Iterable, Iterator
from math import expm1
from typing import Final

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from fathom.engine.depth import summary
from fathom.tuning.alarms.alarm import Alarm
from fathom.tuning.explanation import BucketExplanation, Explanation, PositionExplanation, Worth

_LITTLE: Final = 0.005
"""Shares below half a percent are shown as none."""


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


def alarm_sentence(alarm: Alarm) -> str:
    """What was seen, and what to do."""
    return f"{alarm.kind}/{alarm.reason}: {alarm.message} {alarm.recommendation}"


def _parts(explanation: Explanation) -> Iterator[RenderableType]:
    if explanation.schedule:
        yield Text.assemble(
            ("Depth in force ", "bold"),
            f"{summary(explanation.schedule)} (generation {explanation.generation}): ",
            ", ".join(
                f"{part.depth} at batch {part.first}-{part.last}" for part in explanation.schedule
            ),
        )
    if explanation.nothing:
        yield Text(f"\n{explanation.nothing}")
        return
    yield Text()
    yield surface_table(explanation)
    if explanation.positions:  # else drafts are cut, and nobody knows which were verified
        yield acceptance_table(explanation.positions)
    yield from bullets(
        "Why each batch has its depth",
        (f"{each.batches} at {each.depth}: {each.why}" for each in explanation.buckets),
    )
    yield from bullets("What it is unsure of", explanation.doubts)
    yield from bullets("What it would do next", [explanation.next_step])
    yield from bullets("What would change its mind", explanation.turning_points)
    yield from bullets("Alarms", map(alarm_sentence, explanation.alarms))
    for whom, apart in explanation.apart:
        yield Text(f"\nTuned apart: {whom}", style="bold")
        yield from _parts(apart)


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
    row("±", (f"{each.error:.0%}" for each in columns))
    row("survival", (f"{each.survival:.2f}" for each in columns))
    row("acceptance length", (f"{each.acceptance_length:.2f}" for each in columns))
    return table
