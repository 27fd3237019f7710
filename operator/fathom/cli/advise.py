"""`fathom advise`."""

from collections.abc import Iterator

import typer

from fathom.adapters.ports import SystemClock
from fathom.cli.cluster import LiveResource, read_resource
from fathom.cli.options import Context, Kubeconfig, Name, Namespace
from fathom.cli.target import on_resource, valid
from fathom.resource import SpeculativeDeployment, why_not_live
from fathom.tuning.depth_to_write import DepthToWrite, depth_to_write
from fathom.tuning.interface import settings_from

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
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
    """
    key, live = on_resource(
        name, read_resource, namespace=namespace, context=context, kubeconfig=kubeconfig
    )
    resource = valid(key, live)
    for line in advice_lines(resource, live, SystemClock().now_s()):
        typer.echo(line)


def advice_lines(
    resource: SpeculativeDeployment, live: LiveResource, now_s: float
) -> Iterator[str]:
    """What is said of one resource."""
    speculation = resource.spec.speculation
    if not (resource.spec.tunable and resource.spec.drafts):
        yield "Nothing is measured by depth in mode Static, or without drafting: nothing to advise."
        return
    settings = settings_from(speculation, resource.engine.max_num_seqs, resource.engine.depths)
    refusal = why_not_live(resource, live.status)
    found = depth_to_write(live.state, settings, live.document, now_s, live=not refusal)
    if found is None:
        yield "Nothing was measured under traffic yet, so there is nothing to advise."
        return
    yield from _sentences(found, speculation.tokens)
    if refusal:
        yield f"Depth is not live here, so only depths count that ran on some pod: {refusal}"


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
