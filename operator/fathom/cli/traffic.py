"""`fathom traffic`: requests for a resource's Service, until an end, and what came of them."""

import asyncio
import random
import signal
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path
from statistics import median
from typing import Annotated, Final, Literal

import typer

from fathom.adapters import kube_config
from fathom.adapters.completions import (
    Ask,
    Load,
    RequestResult,
    TrafficSummary,
    at_address,
    through_api_server,
)
from fathom.adapters.http import http_session
from fathom.adapters.kube import Kube
from fathom.api.conditions import ConditionStatus, ConditionType
from fathom.cli.arguments import Name
from fathom.cli.cluster import read_resource
from fathom.cli.documents import AsOutput, Document, Output, written
from fathom.cli.options import (
    Context,
    Kubeconfig,
    Namespace,
    chosen_namespace,
    duration,
    refuse,
    refusing,
    valid,
)
from fathom.cluster.kinds import ObjectKey
from fathom.page.subject import Subject
from fathom.quality.comparison import Unanswered
from fathom.text import counted

FAILED: Final = 1
"""Exit code: requests failed."""
MOST_AT_ONCE: Final = 256
TOLD_EVERY_S: Final = 10.0
PROMPTS: Final = (
    "Explain how a lighthouse helps a ship at night.",
    "Write a short story about a clock that runs backwards.",
    "List five uses of an old newspaper, each with a sentence.",
    "What does a compiler do, and in which order?",
)
app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


class TrafficReport(Document):
    """The document of `fathom traffic`."""

    kind: Literal["TrafficReport"] = "TrafficReport"
    namespace: str
    name: str
    seconds: float
    requests: int
    failed: int
    first_error: str | None
    """Why the first request that failed did."""
    tokens: int
    """Generated, of whole requests."""
    tokens_per_second: float
    median_request_seconds: float | None
    """How long a request took that did not fail."""


@app.command(no_args_is_help=True)
def traffic(
    name: Name,
    *,
    concurrency: Annotated[
        int, typer.Option(min=1, max=MOST_AT_ONCE, help="Requests in flight at most.")
    ] = 4,
    rate: Annotated[
        float | None, typer.Option(min=0.001, help="Requests per second at most.")
    ] = None,
    length: Annotated[
        timedelta, typer.Option("--for", parser=duration, metavar="DURATION", help="When it ends.")
    ] = "5m",  # type: ignore[assignment] # typer parses the default too
    prompt: Annotated[
        list[str] | None, typer.Option(help="What to ask; repeat it for several, taken at random.")
    ] = None,
    max_tokens: Annotated[
        int, typer.Option(min=1, max=32_768, help="The longest answer, in tokens.")
    ] = 128,
    url: Annotated[
        str, typer.Option(help="Where the model answers; default: its Service, by the API server.")
    ] = "",
    api_key_file: Annotated[
        Path | None, typer.Option(help="A file with the engines' API key; needs --url.")
    ] = None,
    namespace: Namespace = "",
    context: Context = "",
    kubeconfig: Kubeconfig = None,
    output: AsOutput = Output.TEXT,
) -> None:
    """Send requests to a resource's model, and say what came of them.

    It ends after five minutes (--for), or with Ctrl-C, and waits for what is in flight. The exit
    code is 1 if a request failed. A resource that is not Ready gets none, and the exit code is 2.
    Requests ask for the likeliest tokens (temperature 0).

    Without --url requests go through the API server, which picks a pod for each: you need the right
    to create services/proxy. An API key cannot pass there.

    Example: fathom traffic kimi-k2 -n llm --rate 2 --for 10m
    """
    if api_key_file is not None and not url:
        refuse(
            "The API server does not pass on an API key: give --url with the address of a gateway, "
            "or of `kubectl port-forward`."
        )
    key = ObjectKey(chosen_namespace(namespace, context=context, kubeconfig=kubeconfig), name)
    api_key = _key_in(api_key_file)

    async def run() -> tuple[tuple[RequestResult, ...], float]:
        async with AsyncExitStack() as stack:
            configuration = await kube_config.load(kubeconfig, context)
            configuration.connection_pool_maxsize = max(concurrency, 4)
            api = await stack.enter_async_context(
                kube_config.client(configuration, redirected=False)
            )
            model = model_of(key, await read_resource(Kube(api), key))
            if url:
                session = await stack.enter_async_context(http_session(concurrency))
                ask = at_address(session, url, api_key)
            else:
                ask = through_api_server(api, key.namespace, key.name)
            load = Load(_asking(ask, model, prompt or PROMPTS, max_tokens), per_second=rate)
            tell = _told if output is Output.TEXT else None
            return await sent(load, concurrency, length.total_seconds(), tell=tell)

    with refusing():
        results, seconds = asyncio.run(run())
    report = report_of(key, results, seconds)
    typer.echo(summary_in_words(report) if output is Output.TEXT else written(report, output))
    raise typer.Exit(FAILED if report.failed else 0)


def model_of(key: ObjectKey, live: Subject | None) -> str:
    """The name by which requests ask for a resource's model.

    Raises:
        typer.Exit: there is no such resource, or it is not ready; stderr says so.
    """
    if live is None:
        refuse(f"There is no SpeculativeDeployment {key}.")
    ready = live.status.condition(ConditionType.READY)
    if ready is None or ready.status != ConditionStatus.TRUE:
        why = f"{ready.reason}: {ready.message}" if ready else "no operator has reported on it."
        refuse(
            f"{key} is not ready, so nothing was sent. {why} Wait for it with `kubectl -n "
            f"{key.namespace} wait sd/{key.name} --for=condition=Ready --timeout=10m`."
        )
    model = valid(key, live).spec.model
    return model.served_name or model.id


async def sent(
    load: Load,
    in_flight: int,
    seconds: float,
    *,
    tell: Callable[[TrafficSummary, float, str], None] | None = None,
) -> tuple[tuple[RequestResult, ...], float]:
    """Send until an end, or until it is told to end; return results and the seconds it took.

    Args:
        load: to send.
        in_flight: requests at the same time, at most.
        seconds: until the end.
        tell: is given what came of the last seconds, from time to time, the seconds so far, and
            the first error, empty if there was none; None: nobody is.
    """
    loop, end = asyncio.get_running_loop(), asyncio.Event()
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(each) is not signal.SIG_IGN:
            loop.add_signal_handler(each, end.set)
    began_s = time.monotonic()
    load.keep(in_flight)
    told = 0
    while not end.is_set() and (left_s := began_s + seconds - time.monotonic()) > 0:
        try:
            await asyncio.wait_for(end.wait(), min(left_s, TOLD_EVERY_S))
        except TimeoutError:
            recent, told = load.results[told:], len(load.results)
            if tell is not None and left_s > TOLD_EVERY_S:
                summary = TrafficSummary.of(recent, TOLD_EVERY_S)
                tell(summary, time.monotonic() - began_s, _first_error(recent))
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.remove_signal_handler(each)
    await load.stop()
    return tuple(load.results), time.monotonic() - began_s


def _asking(
    ask: Ask, model: str, prompts: Sequence[str], most_tokens: int
) -> Callable[[], Awaitable[RequestResult]]:
    chosen = random.Random(0)  # noqa: S311 - reproducible, not secret

    async def one() -> RequestResult:
        started_at_s = time.monotonic()
        answer = await ask(model, chosen.choice(prompts), most_tokens)
        tokens, error = (0, answer.sentence) if isinstance(answer, Unanswered) else (answer, "")
        return RequestResult(
            started_at_s=started_at_s, ended_at_s=time.monotonic(), tokens=tokens, error=error
        )

    return one


def _key_in(file: Path | None) -> str:
    if file is None:
        return ""
    try:
        return file.read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        refuse(f"--api-key-file {file} cannot be read: {error}.")


def _first_error(results: Iterable[RequestResult]) -> str:
    return next((each.error for each in results if not each.ok), "")


def _told(summary: TrafficSummary, seconds: float, error: str) -> None:
    typer.echo(line_of(summary, seconds, error))


def line_of(summary: TrafficSummary, seconds: float, error: str) -> str:
    """What came of the last seconds, in a line.

    Args:
        summary: of them.
        seconds: since the first request.
        error: of the first that failed; empty: none did.
    """
    failed = f"{summary.failed} failed, such as: {error}" if summary.failed else "none failed"
    return (
        f"{seconds:.0f} s: {summary.tokens_per_second:.0f} tokens per second, "
        f"{counted(summary.requests, 'request')}, {failed}"
    )


def report_of(key: ObjectKey, results: Sequence[RequestResult], seconds: float) -> TrafficReport:
    """What came of all requests to a resource, within so many seconds."""
    summary = TrafficSummary.of(results, seconds)
    took = [each.ended_at_s - each.started_at_s for each in results if each.ok]
    return TrafficReport(
        namespace=key.namespace,
        name=key.name,
        seconds=round(seconds, 3),
        requests=summary.requests,
        failed=summary.failed,
        first_error=_first_error(results) or None,
        tokens=summary.tokens,
        tokens_per_second=round(summary.tokens_per_second, 1),
        median_request_seconds=round(median(took), 3) if took else None,
    )


def summary_in_words(report: TrafficReport) -> str:
    """The same, in sentences."""
    failed = (
        f"{report.failed} failed. The first: {report.first_error}"
        if report.failed
        else "none failed."
    )
    took = (
        ""
        if report.median_request_seconds is None
        else f" Half of them took at most {report.median_request_seconds:.2f} s."
    )
    return (
        f"{counted(report.requests, 'request')} in {report.seconds:.0f} s, {failed} "
        f"{report.tokens_per_second:.0f} tokens per second.{took}"
    )
