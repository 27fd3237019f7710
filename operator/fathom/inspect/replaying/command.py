"""`fathom replay`."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Final

import durationpy
import typer
from pydantic import JsonValue, TypeAdapter
from rich.console import Console

from fathom.adapters.clock import SystemClock
from fathom.adapters.prometheus.query import PrometheusUnreadableError
from fathom.api.choices import Objective
from fathom.core.cluster.kinds import ObjectKey
from fathom.core.counted import counted
from fathom.inspect.options import refuse
from fathom.inspect.replaying.feeding import Past, feed_files, feed_prometheus
from fathom.inspect.replaying.recording import UnreadableRecordingError
from fathom.inspect.replaying.replay import Replay, ReplayResult
from fathom.inspect.replaying.settings import BadSettingsError, settings_for
from fathom.inspect.replaying.view import replay_view

MOST_COMPLAINTS: Final = 10
_AS_JSON: Final = TypeAdapter(ReplayResult)

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


def _duration(text: str) -> timedelta:
    try:
        length: timedelta = durationpy.from_str(text)
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} is not a duration such as 30s, 24h or 7d.") from error
    if length <= timedelta():
        raise typer.BadParameter(f"{text!r} is not longer than nothing.")
    return length


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
    since: Annotated[
        timedelta, typer.Option(parser=_duration, metavar="DURATION", help="How far to go back.")
    ] = "24h",  # type: ignore[assignment] # typer parses the default too
    step: Annotated[
        timedelta, typer.Option(parser=_duration, metavar="DURATION", help="Shortest step taken.")
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
) -> None:
    """Ask the tuner over recorded metrics what it would have decided, and what that would gain."""
    if bool(files) == bool(prometheus) or (prometheus and not name):
        refuse("Give a recording, or --prometheus URL with --name and --namespace.")
    tuning = {
        "objective": objective,
        "tpotMilliseconds": tpot_milliseconds,
        "windowSeconds": window,
    }
    wishes = {"tokens": tokens, "minTokens": min_tokens, "maxTokens": max_tokens}
    complaints = _Complaints()
    try:
        settings = settings_for(filename, _given(wishes), _given(tuning), max_batch)
        replay = Replay(settings)
        if files:
            feed_files(replay.take, complaints.add, files)
        else:
            now_s = SystemClock().now_s()
            key = ObjectKey(namespace, name)
            from_s, step_s = now_s - since.total_seconds(), step.total_seconds()
            past = Past(prometheus, key, from_s, now_s, step_s, save)
            asyncio.run(feed_prometheus(replay.take, complaints.add, past))
    except (BadSettingsError, UnreadableRecordingError) as error:
        refuse(str(error))
    except PrometheusUnreadableError as error:
        refuse(f"{error}.")
    except OSError as error:
        refuse(f"{save}: cannot be written: {error.strerror}.")
    complaints.print()
    replayed = replay.result()
    if replayed is None:
        refuse(f"There is nothing to replay: {_nothing_in(prometheus, namespace, name)}.")
    _show(replayed, json)


def _nothing_in(prometheus: str, namespace: str, name: str) -> str:
    if not prometheus:
        return "there is no look at any engine in it"
    return (
        f"Prometheus at {prometheus} has no sample of the pods of {namespace}/{name} in that time; "
        "check that it scrapes them, with labels namespace and pod"
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


@dataclass(slots=True)
class _Complaints:
    """What was passed over: the first ones in full, the others counted."""

    first: list[str] = field(default_factory=list)
    more: int = 0

    def add(self, sentence: str) -> None:
        if len(self.first) < MOST_COMPLAINTS:
            self.first.append(sentence)
        else:
            self.more += 1

    def print(self) -> None:
        for sentence in self.first:
            typer.echo(sentence, err=True)
        if self.more:
            typer.echo(
                f"{counted(self.more, 'more look was', 'more looks were')} passed over.", err=True
            )
