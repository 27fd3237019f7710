"""`fathom top`. What is unknown is a dash: it is not zero."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from fathom.adapters import kube_config
from fathom.adapters.ports import KubeError, SystemClock
from fathom.api.status import DecisionStatus, SpeculativeDeploymentStatus
from fathom.cli.cluster import Listed, connected, read_all
from fathom.cli.options import Context, Kubeconfig, Namespace, kube_sentence, refusing
from fathom.resource import UNKNOWN, standing

_ENDLESS: Final = 10_000
"""Columns, where no window bounds them."""
_NUMBERS: Final = ("READY", "DEPTH", "ACCEPT", "TOK/S", "TPOT", "GAIN")
EVERY_S: Final = 2.0
app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


def top_table(listed: Sequence[Listed], now_s: float, *, with_namespace: bool) -> Table:
    """One row per resource, as it is at a moment (Unix seconds)."""
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
        table.add_row(*namespace, each.key.name, *_cells(each.status, now_s))
    return table


def print_whole(console: Console, shown: RenderableType) -> None:
    """Print; where it is no terminal, as wide as it takes: somebody may search it for an alarm."""
    if not console.is_terminal:
        endless = console.options.update(max_width=_ENDLESS)
        console.width = max(console.width, console.measure(shown, options=endless).maximum)
    console.print(shown)


def _cells(status: SpeculativeDeploymentStatus, now_s: float) -> tuple[str | Text, ...]:
    alarms = standing(status, now_s)
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
        Text(", ".join(alarms) or UNKNOWN, style="red" if alarms else ""),
    )


def _decision(decision: DecisionStatus) -> str:
    """What was decided, or with mode Advise would be, and what it should gain."""
    gain, interval = decision.expected_gain_percent, decision.expected_gain_interval_percent
    expected = ""
    if gain:
        expected = f" Expected over all traffic: {gain}%{f' ({interval})' if interval else ''}."
    return f"{decision.message or decision.action}{expected}"


@app.command()
def top_command(
    *,
    namespace: Namespace = "",
    all_namespaces: Annotated[
        bool, typer.Option("-A", "--all-namespaces", help="Show all namespaces.")
    ] = False,
    watch: Annotated[
        bool, typer.Option("-w", "--watch", help="Refresh every 2 seconds, until Ctrl-C.")
    ] = False,
    context: Context = "",
    kubeconfig: Kubeconfig = None,
) -> None:
    """Show all SpeculativeDeployments: depth, speed, gain, what was decided last, and alarms."""
    with refusing():
        where = "" if all_namespaces else namespace or kube_config.namespace(kubeconfig, context)
        with suppress(KeyboardInterrupt):
            asyncio.run(_show(where, kubeconfig, context, watch=watch))


async def _show(namespace: str, kubeconfig: Path | None, context: str, *, watch: bool) -> None:
    console = Console()
    async with connected(kubeconfig, context) as kube:
        listed = await read_all(kube, namespace)
        if not watch:
            print_whole(console, _screen(listed, namespace, ""))
            return
        with Live(_screen(listed, namespace, ""), console=console, auto_refresh=False) as live:
            while True:
                await asyncio.sleep(EVERY_S)
                try:
                    listed, trouble = await read_all(kube, namespace), ""
                except KubeError as error:
                    # The last look stays; what is gone for a moment need not end the watching.
                    trouble = f"{kube_sentence(error)} What is shown is older."
                live.update(_screen(listed, namespace, trouble), refresh=True)


def _screen(listed: tuple[Listed, ...], namespace: str, trouble: str) -> RenderableType:
    where = f"namespace {namespace}" if namespace else "any namespace"
    shown: RenderableType = Text(f"There is no SpeculativeDeployment in {where}.")
    if listed:
        shown = top_table(listed, SystemClock().now_s(), with_namespace=not namespace)
    return Group(shown, Text(trouble, style="red")) if trouble else shown
