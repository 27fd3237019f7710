"""`fathom replay` and `fathom report`: what a recording shows, as tables and as a page."""

import asyncio
import re
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Annotated, Final

import typer
from pydantic import JsonValue, TypeAdapter
from rich.console import Console

from fathom.adapters.ports import KubePort, SystemClock
from fathom.adapters.prometheus_history import Access
from fathom.adapters.prometheus_query import host_in
from fathom.api.choices import Objective
from fathom.api.names import bad_label_names, pod_labels
from fathom.cli.arguments import Name
from fathom.cli.cluster import read_bench, read_resource
from fathom.cli.options import Context, Kubeconfig, Namespace, duration, on_resource, refuse
from fathom.cluster.kinds import ObjectKey
from fathom.page.rendering import recording_page, resource_page
from fathom.page.resource_view import resource_view
from fathom.page.subject import Subject
from fathom.replay.page import ReplayPage, replay_view
from fathom.replay.replay import Replay, ReplayResult
from fathom.replay.run import (
    Complain,
    Past,
    Take,
    feed_files,
    feed_prometheus,
    refusing_replays,
    run,
    settings_for,
)

_AS_JSON: Final = TypeAdapter(ReplayResult)
_PROXY: Final = re.compile(r"https?://[^/\s]+/?")
_HEADER: Final = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):\s*([!-~][ -~]*)")
"""Name and value, without what else HTTP lets a value hold."""

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
report_app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def replay_command(
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="FILE", help="Recordings; several are put together by time."),
    ] = None,
    *,
    prometheus: Annotated[str, typer.Option(metavar="URL", help="Read from here instead.")] = "",
    namespace: Annotated[str, typer.Option("-n", "--namespace", help="Of the pods.")] = "default",
    name: Annotated[str, typer.Option(help="Of the SpeculativeDeployment.")] = "",
    label: Annotated[
        list[str] | None,
        typer.Option(
            metavar="LABEL=VALUE",
            help="Of all series, as metrics.prometheusLabels. Again for more.",
        ),
    ] = None,
    header_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Headers for Prometheus, such as a login: a line NAME: VALUE each."
        ),
    ] = None,
    proxy: Annotated[
        str, typer.Option(metavar="URL", help="Ask Prometheus through it. Default: none.")
    ] = "",
    ca_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="CA of Prometheus (PEM). Default: the system's."),
    ] = None,
    since: Annotated[
        timedelta, typer.Option(parser=duration, metavar="DURATION", help="How far to go back.")
    ] = "24h",  # type: ignore[assignment] # typer parses the default too
    step: Annotated[
        timedelta, typer.Option(parser=duration, metavar="DURATION", help="Shortest step taken.")
    ] = "30s",  # type: ignore[assignment] # typer parses the default too
    save: Annotated[
        Path | None, typer.Option(help="Also write what Prometheus had as a recording.")
    ] = None,
    filename: Annotated[
        str | None,
        typer.Option("-f", "--filename", metavar="FILE", help="The SpeculativeDeployment."),
    ] = None,
    tokens: Annotated[int | None, typer.Option(help="As spec.speculation.tokens.")] = None,
    min_tokens: Annotated[int | None, typer.Option(help="As minTokens.")] = None,
    max_tokens: Annotated[int | None, typer.Option(help="As maxTokens.")] = None,
    max_batch: Annotated[int | None, typer.Option(min=1, help="vLLM's --max-num-seqs.")] = None,
    objective: Annotated[Objective | None, typer.Option(help="As tuning.objective.")] = None,
    tpot_milliseconds: Annotated[
        float | None, typer.Option(help="As tuning.tpotMilliseconds.")
    ] = None,
    window: Annotated[int | None, typer.Option(help="As tuning.windowSeconds.")] = None,
    json: Annotated[Path | None, typer.Option(metavar="FILE", help="Also write all of it.")] = None,
    page: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write it as one HTML file.")
    ] = None,
) -> None:
    """Ask the tuner over recorded metrics what it would have decided, and what that would gain.

    Example: fathom replay day.jsonl.gz -f kimi.yaml
    """
    if bool(files) == bool(prometheus) or (prometheus and not name):
        refuse("Give a recording, or --prometheus URL with --name and --namespace.")
    tuning = {
        "objective": objective,
        "tpotMilliseconds": tpot_milliseconds,
        "windowSeconds": window,
    }
    wishes = {"tokens": tokens, "minTokens": min_tokens, "maxTokens": max_tokens}
    with refusing_replays():
        settings = settings_for(filename, _given(wishes), _given(tuning), max_batch)
    shown = None if page is None else ReplayPage(settings)
    replay = Replay(settings, None if shown is None else shown.saw)
    if files:
        replayed = run(replay, partial(feed_files, files))
        key = ObjectKey("", name)
    else:
        now_s = SystemClock().now_s()
        key = ObjectKey(namespace, name)
        from_s, step_s = now_s - since.total_seconds(), step.total_seconds()
        labels = _labels(label or ())
        access = _access(header_file, proxy, ca_file)
        past = Past(
            url=prometheus,
            key=key,
            from_s=from_s,
            to_s=now_s,
            step_s=step_s,
            save=save,
            labels=labels,
            access=access,
        )
        replayed = run(replay, partial(_feed_past, past), _no_sample_at(past))
    _show(replayed, json)
    if page is not None and shown is not None:
        named = key if name else ObjectKey("", page.stem)
        write_page(recording_page(shown.view(named, replayed)), page)


def _labels(stated: Sequence[str]) -> Mapping[str, str]:
    labels = dict(each.partition("=")[::2] for each in stated)
    if bad_label_names(labels) or not all("=" in each for each in stated):
        refuse("--label: write LABEL=VALUE, such as cluster=eu-1.")
    return labels


def _access(header_file: Path | None, proxy: str, ca_file: Path | None) -> Access:
    if proxy and not _PROXY.fullmatch(proxy):
        refuse("--proxy: write its URL, such as http://proxy.example.com:3128.")
    try:
        headers = {} if header_file is None else _headers(header_file)
        if ca_file is not None:
            ssl.create_default_context(cafile=ca_file)
    except ssl.SSLError:
        refuse(f"--ca-file: {ca_file} holds no certificate (PEM).")
    except OSError as error:
        refuse(f"{error.filename or ca_file}: cannot be read: {error.strerror}.")
    return Access(headers=headers, proxy=proxy, ca_file=ca_file)


def _headers(file: Path) -> Mapping[str, str]:
    headers = {}
    for number, line in enumerate(file.read_bytes().decode("latin-1").splitlines(), start=1):
        if not line.strip():
            continue
        if (found := _HEADER.fullmatch(line.strip())) is None:
            # Not the line itself, which may be a login.
            refuse(f"--header-file: {file}, line {number}: write NAME: VALUE.")
        headers[found[1]] = found[2]
    return headers


def _feed_past(past: Past, take: Take, complain: Complain) -> None:
    try:
        asyncio.run(feed_prometheus(past, take, complain))
    except OSError as error:
        refuse(f"{past.save}: cannot be written: {error.strerror}.")


def _no_sample_at(past: Past) -> str:
    return (
        f"Prometheus at {host_in(past.url)} has no sample of the pods of {past.key} in that time; "
        f"check that it scrapes them, with labels {pod_labels(past.labels)}"
    )


def _show(replayed: ReplayResult, json: Path | None) -> None:
    console = Console()
    for part in replay_view(replayed):
        console.print(part)
    if json is not None:
        try:
            json.write_bytes(_AS_JSON.dump_json(replayed, indent=2) + b"\n")
        except OSError as error:
            refuse(f"{json}: cannot be written: {error.strerror}.")


def _given(options: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    return {name: value for name, value in options.items() if value is not None}


@report_app.command()
def report_command(
    name: Name,
    *,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="Default: NAME.html.")
    ] = None,
    recording: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            help="Ask no cluster, but read this, as `fathom replay` does. May be given again.",
        ),
    ] = None,
    filename: Annotated[
        str | None,
        typer.Option(
            *("-f", "--filename"),
            metavar="FILE",
            help="The SpeculativeDeployment whose wishes count for a recording.",
        ),
    ] = None,
    namespace: Namespace = "",
    context: Context = "",
    kubeconfig: Kubeconfig = None,
) -> None:
    """Write one HTML file that shows a resource as the operator's page does.

    From a cluster it has no history, which only the operator's own page has. From a recording it
    has what was recorded, and what the tuner would have decided.

    It needs nothing else and fetches nothing: attach it to a ticket, open it anywhere.

    Example: fathom report kimi-k2 -n llm -o kimi.html
    """
    if recording:
        page = recorded_page(ObjectKey(namespace, name), recording, filename)
    elif filename is not None:
        refuse("-f is for --recording only: without it, the spec is read from the cluster.")
    else:
        _, subject = on_resource(
            name, _read, namespace=namespace, context=context, kubeconfig=kubeconfig
        )
        page = resource_page(resource_view(subject, SystemClock().now_s()), home=False)
    write_page(page, output or Path(f"{name}.html"))


async def _read(kube: KubePort, key: ObjectKey) -> Subject | None:
    found = await read_resource(kube, key)
    return found and replace(found, bench=await read_bench(kube, key))


def recorded_page(key: ObjectKey, files: Sequence[Path], manifest: str | None) -> str:
    """What recordings show of a resource, as a page.

    Args:
        key: what it is called there; its namespace may be empty.
        files: recordings; several are put together by time.
        manifest: the file whose wishes count; None: the API's defaults.

    Raises:
        typer.Exit: one of them cannot be read, or there is nothing in them; stderr says why.
    """
    with refusing_replays():
        settings = settings_for(manifest, {}, {}, None)
    shown = ReplayPage(settings)
    replayed = run(Replay(settings, shown.saw), partial(feed_files, files))
    return recording_page(shown.view(key, replayed))


def write_page(page: str, file: Path) -> None:
    """Write a page that stands alone, and say where it is.

    Raises:
        typer.Exit: it cannot be written; stderr says why.
    """
    try:
        file.write_text(page, encoding="utf-8")
    except OSError as error:
        refuse(f"{file}: cannot be written: {error.strerror}.")
    typer.echo(f"Written: {file}")
