"""The table of `fathom top`. What is unknown is a dash: it is not zero."""

from collections.abc import Sequence
from typing import Final

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from fathom.api.status import DecisionStatus, SpeculativeDeploymentStatus
from fathom.core.reporting.reading import UNKNOWN, standing
from fathom.inspect.cluster import Listed

_ENDLESS: Final = 10_000
"""Columns, where no window bounds them."""
_NUMBERS: Final = ("READY", "DEPTH", "ACCEPT", "TOK/S", "TPOT", "GAIN")


def top_table(listed: Sequence[Listed], *, with_namespace: bool) -> Table:
    """One row per resource."""
    table = Table(box=None, pad_edge=False)
    if with_namespace:
        table.add_column("NAMESPACE", no_wrap=True)
    table.add_column("NAME", no_wrap=True)
    for column in _NUMBERS:
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("TUNING", no_wrap=True)
    table.add_column("LAST DECISION", ratio=1)
    table.add_column("ALARMS")
    for each in listed:
        namespace = (each.key.namespace,) if with_namespace else ()
        table.add_row(*namespace, each.key.name, *_cells(each.status))
    return table


def print_whole(console: Console, shown: RenderableType) -> None:
    """Print; where it is no terminal, as wide as it takes: somebody may search it for an alarm."""
    if not console.is_terminal:
        endless = console.options.update(max_width=_ENDLESS)
        console.width = max(console.width, console.measure(shown, options=endless).maximum)
    console.print(shown)


def _cells(status: SpeculativeDeploymentStatus) -> tuple[str | Text, ...]:
    measured, decision = status.measured, status.tuning.last_decision
    tpot = measured.tpot_milliseconds
    return (
        status.ready or UNKNOWN,
        status.depth.summary or UNKNOWN,
        measured.acceptance_length or UNKNOWN,
        str(measured.tokens_per_second) if measured.at else UNKNOWN,
        f"{tpot} ms" if tpot else UNKNOWN,
        f"{measured.gain_percent}%" if measured.gain_percent else UNKNOWN,
        status.tuning.summary or UNKNOWN,
        Text(_decision(decision) if decision else UNKNOWN),
        Text(", ".join(standing(status)) or UNKNOWN, style="red" if any(standing(status)) else ""),
    )


def _decision(decision: DecisionStatus) -> str:
    """What was decided, or with mode Advise would be, and what it should gain."""
    gain, interval = decision.expected_gain_percent, decision.expected_gain_interval_percent
    expected = ""
    if gain:
        expected = f" Expected: {gain}%{f' ({interval})' if interval else ''}."
    return f"{decision.message or decision.action}{expected}"
