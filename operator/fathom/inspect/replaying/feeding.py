"""Looks from recordings or from a Prometheus, in the order of time, with progress on a terminal."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, closing
from dataclasses import dataclass, field
from heapq import merge
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from fathom.adapters.answers import http_session
from fathom.adapters.exposition import NotAnEngine, counters
from fathom.adapters.prometheus.history import PrometheusHistory, Scrape
from fathom.core.cluster.kinds import ObjectKey
from fathom.core.measurement import PodCounters
from fathom.inspect.replaying.recording import (
    BadLine,
    RecordingWriter,
    UnreadableRecordingError,
    looks_in,
)

Take = Callable[[PodCounters], None]
Complain = Callable[[str], None]
"""Takes a sentence about what was passed over."""


@dataclass(frozen=True, slots=True)
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
    """Of all series that are meant."""


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
    async with AsyncExitStack() as opened:
        session = await opened.enter_async_context(http_session(connections=1))
        history = PrometheusHistory(session, past.url, labels=past.labels)
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
