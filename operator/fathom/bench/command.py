"""`fathom bench`."""

import asyncio
import uuid
from typing import Annotated, Final, Literal

import typer
from rich.console import Console

from fathom.adapters import kube_config
from fathom.adapters.jobs import JobCluster
from fathom.api.status import SpeculativeDeploymentStatus
from fathom.bench.job import bench_program
from fathom.bench.log import progress
from fathom.bench.planning import as_fetched, planned, require_all_placed
from fathom.bench.request import SUBSETS, BenchRefusedError, BenchRequest
from fathom.bench.result import bench_table, found
from fathom.bench.runner import follow, keep, remove, start, under_way
from fathom.cli.arguments import Name
from fathom.cli.cluster import connected_for_jobs
from fathom.cli.documents import AsOutput, Document, Output, written
from fathom.cli.options import (
    ENDED,
    Context,
    Kubeconfig,
    Namespace,
    end_when_told,
    refuse,
    refusing,
)
from fathom.cluster.kinds import SPECULATIVE_DEPLOYMENT, ObjectKey
from fathom.cluster.snapshot import status_in
from fathom.engine.plugin import plugin_bundle
from fathom.measurement.bench_result import BenchRow, DepthBench
from fathom.resource import SpeculativeDeployment, known_part, parse
from fathom.times import rfc3339
from fathom.validation.candidate import candidate_of
from fathom.validation.chain import errors_of

NOT_ALL: Final = 1
"""Exit code: some of it was not measured."""
WIDTH: Final = 120
_DEFAULTS: Final = BenchRequest()

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


class BenchReport(Document):
    """The document of `-o json`."""

    kind: Literal["BenchReport"] = "BenchReport"
    namespace: str
    name: str
    """Name of the SpeculativeDeployment."""
    image: str
    """Image of the engine."""
    at: str
    """When it ended."""
    rows: tuple[BenchRow, ...]
    """A row for each run that was measured."""
    failed: int
    """Requests of all rows that were not answered."""
    not_measured: tuple[str, ...]
    """What came to nothing, a sentence each."""


@app.command()
def bench_command(
    name: Name,
    *,
    concurrency: Annotated[
        str, typer.Option(help="Requests in flight, separated by commas; a row each.")
    ] = "1,4,16",
    depths: Annotated[
        str, typer.Option(help="Separated by commas; default: all that the engine has.")
    ] = "",
    prompts: Annotated[
        list[str] | None,
        typer.Option(
            help="random, pvc:CLAIM/PATH or configmap:NAME/KEY; may be repeated. A path that ends "
            "in .json is ShareGPT-shaped, any other a folder of SPEED-Bench. Default: random."
        ),
    ] = None,
    input_tokens: Annotated[
        str, typer.Option(help="Of random prompts, separated by commas; a series each.")
    ] = "1024",
    output_tokens: Annotated[int, typer.Option(min=2, help="Of each answer, at most.")] = (
        _DEFAULTS.output_tokens
    ),
    num_prompts: Annotated[
        int | None, typer.Option(min=1, help="Of each run; default: 8 for each request in flight.")
    ] = None,
    subset: Annotated[str, typer.Option(help=f"Of SPEED-Bench: {', '.join(SUBSETS)}.")] = (
        _DEFAULTS.subset
    ),
    category: Annotated[
        list[str] | None, typer.Option(help="Of SPEED-Bench; may be repeated. Default: all as one.")
    ] = None,
    temperature: Annotated[float, typer.Option(min=0.0, help="0 decodes greedily.")] = 0.0,
    true_off: Annotated[
        bool, typer.Option(help="Also start the engine without speculation, to compare.")
    ] = True,
    deadline_minutes: Annotated[
        int, typer.Option(min=1, help="After which the Job is ended, whatever it is at.")
    ] = _DEFAULTS.deadline_minutes,
    room_minutes: Annotated[
        float, typer.Option(min=0.0, help="How long to wait for a node with capacity.")
    ] = 3.0,
    watch: Annotated[
        bool, typer.Option("--follow", help="Watch the bench that is under way; start none.")
    ] = False,
    output: AsOutput = Output.TEXT,
    namespace: Namespace = "",
    context: Context = "",
    kubeconfig: Kubeconfig = None,
) -> None:
    """Measure an engine at each depth, and without speculation, with vLLM's own load generator.

    It runs in a pod next to the fleet, which continues to serve. Exit code 1: some of it was not
    measured.

    Example: fathom bench kimi-k2 -n llm --depths 0,3 --concurrency 1
    """
    try:
        request = BenchRequest(
            concurrency=_numbers("--concurrency", concurrency),
            depths=_numbers("--depths", depths, least=0) if depths else None,
            prompts=tuple(prompts or _DEFAULTS.prompts),
            input_tokens=_numbers("--input-tokens", input_tokens),
            output_tokens=output_tokens,
            num_prompts=num_prompts,
            subset=subset,
            categories=tuple(category or ()),
            temperature=temperature,
            true_off=true_off,
            deadline_minutes=deadline_minutes,
        )
        with refusing():
            key = ObjectKey(namespace or kube_config.namespace(kubeconfig, context), name)

            async def bench() -> int:
                end_when_told()
                async with connected_for_jobs(kubeconfig, context) as cluster:
                    asked = None if watch else request
                    room_s = room_minutes * 60
                    return await carried_out(cluster, key, asked, room_s=room_s, output=output)

            code = asyncio.run(bench())
    except BenchRefusedError as error:
        refuse(str(error))
    except asyncio.CancelledError:
        raise typer.Exit(ENDED) from None
    raise typer.Exit(code)


def report(namespace: str, bench: DepthBench) -> BenchReport:
    """A bench as a document.

    Args:
        namespace: of the resource.
        bench: what was found.
    """
    return BenchReport(
        namespace=namespace,
        name=bench.name,
        image=bench.image,
        at=bench.at,
        rows=bench.rows,
        failed=sum(row.failed for row in bench.rows),
        not_measured=bench.not_measured,
    )


def show(bench: DepthBench, console: Console) -> None:
    """Print a result for people."""
    if bench.rows:
        console.print(bench_table(bench))
    for row in bench.rows:
        if row.failed:
            console.print(
                f"{row.data}, {row.concurrency} at a time: {row.failed} of "
                f"{row.failed + row.requests} requests failed.",
                markup=False,
            )
    for sentence in bench.not_measured:
        console.print(f"Not measured: {sentence}", markup=False, highlight=False)


def exit_code(bench: DepthBench) -> int:
    """What a result makes of the command."""
    return NOT_ALL if bench.not_measured or any(row.failed for row in bench.rows) else 0


async def carried_out(
    cluster: JobCluster,
    key: ObjectKey,
    request: BenchRequest | None,
    *,
    room_s: float,
    output: Output,
) -> int:
    """Bench a resource, or watch a bench, to its end.

    Args:
        cluster: where.
        key: of the resource.
        request: what is asked; None: the bench that is under way is watched.
        room_s: seconds that its pod may have trouble to start.
        output: how its result is printed.

    Returns:
        The exit code.

    Raises:
        BenchRefusedError: it cannot be measured.
        KubeError: the cluster cannot be asked.
    """
    sd, status = await _resource(cluster, key)
    if request is None:
        run = await under_way(cluster, sd)
    else:
        require_all_placed(sd, status)
        run, program, bundle = uuid.uuid4().hex[:8], bench_program(), plugin_bundle()
        bench = planned(sd, request, bundle)
        minutes = request.deadline_minutes
        await start(cluster, sd, bench, run=run, deadline_minutes=minutes, program=program)
    try:
        with progress(Console(stderr=True), cluster.clock.now_s) as tell:
            told = await follow(cluster, sd, run=run, room_s=room_s, tell=tell)
    except BaseException:
        # Nobody waits for it any longer, and what runs unseen holds GPUs. One that somebody
        # else began is theirs.
        if request is not None:
            typer.echo(await remove(cluster, sd, run), err=True, nl=False)
        raise
    found_now = found(sd, told, rfc3339(cluster.clock.now_s()))
    if output is Output.TEXT:
        show(found_now, _console())
    else:
        typer.echo(written(report(key.namespace, found_now), output))
    if found_now.rows:
        await keep(cluster, sd, found_now)
    typer.echo(await remove(cluster, sd, run), err=True, nl=False)
    return exit_code(found_now)


def _console() -> Console:
    """Wide enough for the table where it is a file, which has no width."""
    console = Console()
    if not console.is_terminal:
        console.width = WIDTH
    return console


async def _resource(
    cluster: JobCluster, key: ObjectKey
) -> tuple[SpeculativeDeployment, SpeculativeDeploymentStatus]:
    found_there = await cluster.kube.get(SPECULATIVE_DEPLOYMENT, key.namespace, key.name)
    if found_there is None:
        raise BenchRefusedError(f"There is no SpeculativeDeployment {key}.")
    parsed = parse(known_part(found_there).known)
    problems = (
        errors_of(candidate_of(parsed, {})) if isinstance(parsed, SpeculativeDeployment) else parsed
    )
    if problems or not isinstance(parsed, SpeculativeDeployment):
        said = "\n".join(f"  {each}" for each in problems)
        raise BenchRefusedError(f"The spec of {key} is refused, so nothing can be started:\n{said}")
    status = status_in(found_there, SpeculativeDeploymentStatus) or SpeculativeDeploymentStatus()
    return as_fetched(parsed, status), status


def _numbers(option: str, text: str, least: int = 1) -> tuple[int, ...]:
    """Whole numbers separated by commas, each once.

    Raises:
        BenchRefusedError: it is something else.
    """
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdecimal() and int(part) >= least for part in parts):
        raise BenchRefusedError(
            f"{option} {text!r}: write whole numbers from {least} on, separated by commas."
        )
    return tuple(dict.fromkeys(map(int, parts)))
