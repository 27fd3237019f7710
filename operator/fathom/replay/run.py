"""Runs a replay to its end: from recordings or a Prometheus, in the order of time.

By the wishes of a manifest, with what the command line says over them.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from heapq import merge
from pathlib import Path
from typing import Final

import typer
from pydantic import JsonValue, ValidationError
from rich.console import Console
from rich.progress import Progress

from fathom.adapters.exposition import counters
from fathom.adapters.prometheus_history import Access, PrometheusHistory, Scrape
from fathom.adapters.prometheus_query import PrometheusUnreadableError
from fathom.adapters.series import NotAnEngine
from fathom.adapters.yaml_documents import UnreadableManifestError, read_documents
from fathom.api.spec import SpeculationSpec
from fathom.cli.options import refuse
from fathom.cluster.kinds import ObjectKey
from fathom.measurement.counters import PodCounters
from fathom.replay.recording import BadLine, RecordingWriter, UnreadableRecordingError, looks_in
from fathom.replay.replay import Replay, ReplayResult
from fathom.resource import SpeculativeDeployment, is_speculative_deployment, parse
from fathom.text import counted
from fathom.tuning.interface import Settings, settings_from

Take = Callable[[PodCounters], None]
Complain = Callable[[str], None]
"""Takes a sentence about what was passed over."""
MOST_COMPLAINTS: Final = 10
MAX_BATCH: Final = 256
"""Where neither a manifest nor the command line says: vLLM's own default on most GPUs."""
NO_LOOK: Final = "there is no scrape of any engine in it"
"""Why there is nothing to replay in a recording."""
Feed = Callable[[Take, Complain], None]
"""Hands over every look, and a sentence about each that is passed over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """What to ask a Prometheus for."""

    url: str
    key: ObjectKey
    """The resource whose pods are meant."""
    from_s: float
    to_s: float
    step_s: float
    """Scrapes that follow each other sooner are passed over."""
    save: Path | None = None
    """Where to write a recording of it."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Labels of all series that are meant."""
    access: Access = field(default_factory=Access)


def feed_files(files: Sequence[Path], take: Take, complain: Complain) -> None:
    """Feed recordings, each in the order of time, as one.

    Raises:
        UnreadableRecordingError: one of them cannot be read.
    """
    with ExitStack() as opened, _progress() as progress:
        try:
            streams = [
                (opened.enter_context(progress.open(each, "rb", description=each.name)), str(each))
                for each in files
            ]
        except OSError as error:
            raise UnreadableRecordingError(
                f"{error.filename}: cannot be read: {error.strerror}."
            ) from error
        looks = [_usable(looks_in(stream, where), complain) for stream, where in streams]
        for look in merge(*looks, key=lambda look: look.at_s):
            take(look)


async def feed_prometheus(past: Past, take: Take, complain: Complain) -> None:
    """Feed what a Prometheus recorded, and write it down if that is wanted.

    Raises:
        PrometheusUnreadableError: it cannot be read.
        OSError: the recording cannot be written.
    """
    with ExitStack() as opened:
        history = PrometheusHistory(past.url, past.access, labels=past.labels)
        opened.enter_context(closing(history))
        progress = opened.enter_context(_progress())
        writer = None
        if past.save is not None:
            writer = opened.enter_context(closing(RecordingWriter(past.save)))
        task = progress.add_task(str(past.key), total=past.to_s - past.from_s)
        async for chunk in history.chunks(past.key, past.from_s, past.to_s, past.step_s):
            for scrape in chunk.scrapes:
                if writer is not None:
                    writer.write(at_s=scrape.at_s, pod=scrape.pod, points=scrape.points)
                _take_scrape(take, complain, scrape)
            progress.update(task, completed=chunk.until_s - past.from_s)


def _take_scrape(take: Take, complain: Complain, scrape: Scrape) -> None:
    try:
        look = counters(scrape.points, pod=scrape.pod, at_s=scrape.at_s)
    except NotAnEngine as error:
        complain(f"{scrape.pod} at {scrape.at_s:.0f} cannot be used: {error}.")
    else:
        take(look)


def _usable(found: Iterator[PodCounters | BadLine], complain: Complain) -> Iterator[PodCounters]:
    for each in found:
        if isinstance(each, BadLine):
            complain(each.message)
        else:
            yield each


def _progress() -> Progress:
    """On stderr, and only where somebody looks on."""
    console = Console(stderr=True)
    return Progress(console=console, transient=True, disable=not console.is_terminal)


@contextmanager
def refusing_replays() -> Iterator[None]:
    """Turns wishes and sources that cannot be read into a sentence and exit code 2."""
    try:
        yield
    except (BadSettingsError, UnreadableRecordingError) as error:
        refuse(str(error))
    except PrometheusUnreadableError as error:
        refuse(f"{error}.")


def run(replay: Replay, feed: Feed, nothing: str = NO_LOOK) -> ReplayResult:
    """Feed a replay, and say on stderr what was passed over.

    Args:
        replay: at its beginning.
        feed: where its looks come from.
        nothing: why there is nothing to replay, where there is nothing.

    Raises:
        typer.Exit: there is nothing to replay, or it cannot be read; stderr says why.
    """
    complaints = _Complaints()
    with refusing_replays():
        feed(replay.take, complaints.add)
    complaints.print()
    replayed = replay.result()
    if replayed is None:
        refuse(f"There is nothing to replay: {nothing}.")
    return replayed


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
                f"{counted(self.more, 'more scrape was', 'more scrapes were')} skipped.", err=True
            )


class BadSettingsError(Exception):
    """The wishes contradict each other, or cannot be read; the message is a sentence."""


def settings_for(
    manifest: str | None,
    speculation: Mapping[str, JsonValue],
    tuning: Mapping[str, JsonValue],
    most: int | None,
) -> Settings:
    """Put the wishes together.

    Args:
        manifest: a file with one SpeculativeDeployment, `-` for stdin; None: the API's defaults.
        speculation: fields of `spec.speculation`, as users write them, that go before the
            manifest's.
        tuning: fields of `spec.speculation.tuning`, likewise.
        most: `--max-num-seqs`; None: the manifest's.

    Raises:
        BadSettingsError: with a sentence for the user.
    """
    resource = None if manifest is None else _resource(manifest)
    written = SpeculationSpec() if resource is None else resource.spec.speculation
    document = written.model_dump(by_alias=True, mode="json")
    document |= {"tuning": {**document["tuning"], **tuning}, **speculation}
    try:
        wished = SpeculationSpec.model_validate(document)
    except ValidationError as error:
        problems = "; ".join(
            f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors()
        )
        raise BadSettingsError(f"The settings are refused: {problems}.") from error
    batch, named = most or MAX_BATCH, None
    if resource is not None:
        batch = most or resource.engine.max_num_seqs
        spec = resource.spec.model_copy(update={"speculation": wished})
        named = resource.with_spec(spec).engine.depths
    settings = settings_from(wished, batch, named)
    if not settings.min_tokens <= settings.tokens <= settings.max_tokens:
        raise BadSettingsError(
            f"tokens ({settings.tokens}) must lie within minTokens ({settings.min_tokens}) and "
            f"maxTokens ({settings.max_tokens})."
        )
    if settings.tokens not in settings.depths:
        depths = ", ".join(map(str, settings.depths))
        raise BadSettingsError(
            f"tokens ({settings.tokens}) must be one of the manifest's depths ({depths})."
        )
    if settings.objective.keeps_slo and settings.tpot_slo_seconds is None:
        raise BadSettingsError("Objective Goodput needs --tpot-milliseconds.")
    return settings


def _resource(file: str) -> SpeculativeDeployment:
    try:
        documents = [each for each in read_documents(file) if is_speculative_deployment(each)]
    except UnreadableManifestError as error:
        raise BadSettingsError(f"{file}: {error}") from error
    if len(documents) != 1:
        raise BadSettingsError(
            f"{file}: holds {len(documents)} SpeculativeDeployments; a replay goes by exactly one."
        )
    parsed = parse(documents[0])
    if not isinstance(parsed, SpeculativeDeployment):
        raise BadSettingsError(f"{file}: {'; '.join(map(str, parsed))}")
    return parsed
