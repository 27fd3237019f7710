"""`fathom explain`."""

from collections.abc import Iterator

import typer
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from fathom.adapters.clock import SystemClock
from fathom.api.conditions import AlarmKind, ConditionStatus, ConditionType
from fathom.api.status import DecisionStatus, SpeculativeDeploymentStatus
from fathom.core.reporting.reading import why_not_live
from fathom.inspect.cluster import LiveResource, read_resource
from fathom.inspect.explanation_view import bullets, explanation_view
from fathom.inspect.options import Context, Kubeconfig, Name, Namespace
from fathom.inspect.target import on_resource, valid
from fathom.resource import SpeculativeDeployment
from fathom.tuning.explanation import explain
from fathom.tuning.settings import settings_from

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def explain_command(
    name: Name,
    *,
    namespace: Namespace = "",
    context: Context = "",
    kubeconfig: Kubeconfig = None,
) -> None:
    """Say what a tuner has measured, why each batch has its depth, and what it is unsure of."""
    key, live = on_resource(
        name, read_resource, namespace=namespace, context=context, kubeconfig=kubeconfig
    )
    resource = valid(key, live)
    console = Console()
    for part in live_view(resource, live, SystemClock().now_s()):
        console.print(part)


def live_view(
    resource: SpeculativeDeployment, live: LiveResource, now_s: float
) -> Iterator[RenderableType]:
    """All that is shown of one resource."""
    speculation, tuning = resource.spec.speculation, resource.spec.speculation.tuning
    yield Text.assemble(
        (resource.metadata.name, "bold"),
        f": mode {tuning.mode}, objective {tuning.objective}, tokens {speculation.tokens} within "
        f"{speculation.min_tokens} to {speculation.effective_max_tokens}",
    )
    yield from (Text(line) for line in _at_present(resource, live.status))
    if resource.spec.tunable and resource.spec.drafts:
        engine = resource.engine
        settings = settings_from(speculation, engine.max_num_seqs, engine.depths)
        ready = live.status.ready_replicas or None
        found = explain(
            live.state,
            settings,
            live.document,
            now_s,
            pods=ready,
            live=not why_not_live(resource, live.status),
        )
        yield explanation_view(found)
    yield from bullets("What needs attention", attention(live.status))
    if live.status.tuning.history:
        yield Text()
        yield history_table(live.status.tuning.history)


def attention(status: SpeculativeDeploymentStatus) -> Iterator[str]:
    """Conditions that are not as they should be; alarms are told by the explanation itself."""
    good: dict[ConditionType | AlarmKind, ConditionStatus] = {
        ConditionType.READY: ConditionStatus.TRUE,
        ConditionType.DEGRADED: ConditionStatus.FALSE,
    }
    for each in status.conditions:
        if each.status != good.get(each.type, each.status) and not isinstance(each.type, AlarmKind):
            yield f"{each.type}={each.status}, {each.reason}: {each.message}"


def history_table(history: tuple[DecisionStatus, ...]) -> Table:
    """The last decisions, newest first."""
    table = Table(title="Last decisions", title_justify="left")
    for column in ("at", "action", "why"):
        table.add_column(column, no_wrap=column != "why")
    table.add_column("expected", justify="right")
    table.add_column("measured", justify="right")
    for each in history:
        table.add_row(
            each.at,
            each.action,
            Text(each.message or each.reason),
            _percent(each.expected_gain_percent),
            _percent(each.measured_gain_percent),
        )
    return table


def _at_present(
    resource: SpeculativeDeployment, status: SpeculativeDeploymentStatus
) -> Iterator[str]:
    measured = status.measured
    if measured.at:
        yield (
            f"{measured.tokens_per_second} tokens per second, acceptance length "
            f"{measured.acceptance_length or 'unknown'}, gain over tokens "
            f"{_percent(measured.gain_percent) or 'not known yet'} (at {measured.at})"
        )
    if not resource.spec.tunable:
        yield f"Mode Static: depth stays at {resource.spec.speculation.tokens}; nothing is tuned."
    elif why := why_not_live(resource, status):
        yield f"Depth cannot be changed live: {why}"
    elif status.engine.reason:
        yield f"Depth can be changed live: {status.engine.reason}"
    for each in status.conditions:
        if each.type is ConditionType.TUNING:
            yield f"{each.reason}: {each.message}"


def _percent(value: str) -> str:
    return f"{value} %" if value else ""
