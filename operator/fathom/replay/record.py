"""`fathom record`: what all serving pods of a resource show, written down as `replay` reads it."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from math import ceil
from pathlib import Path
from typing import Annotated, Final, Protocol

import typer
from rich.console import Console
from rich.live import Live
from rich.text import Text

from fathom.adapters import kube_config
from fathom.adapters.http import BadAnswerError
from fathom.adapters.kube import Kube
from fathom.adapters.pod_metrics import CONCURRENCY, ForbiddenPageError, ProxiedPages
from fathom.adapters.ports import Clock, KubeError, KubePort, PodEndpoint, SystemClock
from fathom.api import names
from fathom.cli.arguments import Name
from fathom.cli.options import (
    ENDED,
    Context,
    Kubeconfig,
    Namespace,
    duration,
    end_when_told,
    kube_sentence,
    refuse,
    refusing,
)
from fathom.cluster.kinds import POD, SPECULATIVE_DEPLOYMENT, ObjectKey
from fathom.cluster.observed_pods import ObservedPod
from fathom.engine.flags import HTTP_PORT
from fathom.fetch.state import size
from fathom.replay.recording import RecordingWriter
from fathom.text import counted
from fathom.times import rfc3339

SHORTEST_EVERY: Final = timedelta(seconds=1)
NOTHING: Final = 1
"""Exit code: no pod could be read."""
_ALL: Final = ""
"""The subject of what is true of no pod in particular."""
app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


class PageSource(Protocol):
    """Where pages come from."""

    async def page(self, pod: PodEndpoint) -> str:
        """What a pod's /metrics shows.

        Raises:
            ForbiddenPageError: whoever asks lacks the right.
            BadAnswerError: there is no such page.
        """
        ...


class PageSink(Protocol):
    """Where pages go."""

    def write_page(self, *, at_s: float, pod: str, page: str) -> None:
        """Add one."""
        ...

    def flush(self) -> int:
        """Keep what was written; the size of all of it in bytes."""
        ...


@dataclass(slots=True, kw_only=True)
class Tally:
    """How far a recording is."""

    pods: int = 0
    """That were read last."""
    lines: int = 0
    size_bytes: int = 0
    seconds: float = 0.0

    def __str__(self) -> str:
        lasted = timedelta(seconds=round(self.seconds))
        written = f"{counted(self.lines, 'line')}, {size(self.size_bytes)}"
        return f"{counted(self.pods, 'pod')}, {written}, {lasted}"


@dataclass(slots=True, kw_only=True)
class Recorder:
    """Reads all serving pods of one resource, and writes down what they show."""

    kube: KubePort
    pages: PageSource
    sink: PageSink
    clock: Clock
    key: ObjectKey
    complain: Callable[[str], None]
    """Takes a sentence about what cannot be read, once for each change."""
    at_once: int = CONCURRENCY
    tally: Tally = field(default_factory=Tally)
    _why: dict[str, str] = field(default_factory=dict)
    """Why each pod that could not be read last could not be."""
    _newest_s: float = 0.0

    async def look(self) -> None:
        """Read each pod once. One that cannot be read holds up no other.

        Raises:
            ForbiddenPageError: nothing was read yet, and it is for want of a right.
            KubeError: nothing was read yet, and the pods cannot be listed.
            OSError: the recording cannot be written.
        """
        try:
            pods = await self._serving()
        except KubeError as error:
            if not self.tally.lines:
                raise
            unknown = f"The pods of {self.key} are not known. {kube_sentence(error)}"
            self._report({**self._why, _ALL: unknown}, ())
            return
        slots = asyncio.Semaphore(self.at_once)
        answers = await asyncio.gather(*(self._read(pod, slots) for pod in pods))
        failures = {pod.pod: each for pod, each in zip(pods, answers, strict=True) if each}
        for each in failures.values():
            if isinstance(each, ForbiddenPageError) and not self.tally.lines:
                raise each
        why = {pod: f"Pod {pod} cannot be read: {each}." for pod, each in failures.items()}
        if not pods:
            why[_ALL] = f"No pod of {self.key} serves."
        self._report(why, [pod.pod for pod in pods if pod.pod not in failures])
        self.tally.pods = len(pods) - len(failures)

    async def _serving(self) -> tuple[PodEndpoint, ...]:
        selector = f"{names.LABEL_NAME}={self.key.name}"
        found = await self.kube.select(POD, self.key.namespace, selector)
        pods = (ObservedPod.model_validate(each) for each in found)
        return tuple(
            PodEndpoint(
                namespace=pod.metadata.namespace,
                pod=pod.name,
                ip=pod.status.pod_ip,
                port=HTTP_PORT,
            )
            for pod in pods
            if pod.leads and pod.ready
        )

    async def _read(self, pod: PodEndpoint, slots: asyncio.Semaphore) -> BadAnswerError | None:
        """Why a pod cannot be read; None: it was, and is written down."""
        try:
            async with slots:
                page = await self.pages.page(pod)
        except BadAnswerError as error:
            return error
        # In the order of time, whatever becomes of the clock.
        self._newest_s = max(self._newest_s, self.clock.now_s())
        self.sink.write_page(at_s=self._newest_s, pod=pod.pod, page=page)
        self.tally.size_bytes = self.sink.flush()
        self.tally.lines += 1
        return None

    def _report(self, why: dict[str, str], read: Collection[str]) -> None:
        for subject, sentence in why.items():
            if self._why.get(subject) != sentence:
                self.complain(sentence)
        for pod in sorted(self._why.keys() & set(read)):
            self.complain(f"Pod {pod} is read again.")
        self._why = why


async def follow(
    recorder: Recorder,
    *,
    every_s: float,
    for_s: float | None,
    pause: Callable[[float], Awaitable[None]],
    show: Callable[[Tally], None],
) -> None:
    """Look again and again; what takes too long costs looks, and does not put off the next.

    Args:
        recorder: at its beginning.
        every_s: seconds between two looks.
        for_s: seconds from the first look to the last, at most; None: it does not end.
        pause: waits for so many seconds.
        show: takes how far it is, after each look.

    Raises:
        ForbiddenPageError: as of `Recorder.look`; so are the others.
        KubeError: likewise.
        OSError: likewise.
    """
    clock, number = recorder.clock, 0
    start_s = clock.now_s()
    while True:
        await recorder.look()
        recorder.tally.seconds = lasted_s = clock.now_s() - start_s
        show(recorder.tally)
        number = max(number + 1, ceil(lasted_s / every_s))
        if for_s is not None and number * every_s > for_s:
            return
        await pause(min(every_s, number * every_s - lasted_s))


@app.command()
def record_command(
    name: Name,
    *,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="Default: NAME.jsonl.gz.")
    ] = None,
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="Overwrite FILE. An existing one is kept otherwise, and never continued: `fathom "
            "replay` takes several files.",
        ),
    ] = False,
    every: Annotated[
        timedelta, typer.Option(parser=duration, metavar="DURATION", help="Between two scrapes.")
    ] = "30s",  # type: ignore[assignment] # typer parses the default too
    for_: Annotated[
        timedelta | None,
        typer.Option("--for", parser=duration, metavar="DURATION", help="Default: until Ctrl-C."),
    ] = None,
    namespace: Namespace = "",
    context: Context = "",
    kubeconfig: Kubeconfig = None,
) -> None:
    """Write down what all serving pods of one show on /metrics, for `fathom replay`.

    It reads them through the API server, for which you need the right to get pods/proxy. A pod
    that cannot be read is reported, and the others are recorded. FILE is gzipped if its name ends
    in .gz. What was written is kept however the recording ends.

    Exit codes: 0, recorded, also after Ctrl-C; 1, no pod could be read; 2, refused, and stderr
    says why.

    Example: fathom record kimi-k2 -n llm --for 10m
    """
    if every < SHORTEST_EVERY:
        refuse("--every: take 1s or longer, as the API server passes on each page.")
    file, tally, code = output or Path(f"{name}.jsonl.gz"), Tally(), 0
    with refusing():
        wanted = _Wanted(
            key=ObjectKey(namespace or kube_config.namespace(kubeconfig, context), name),
            file=file,
            force=force,
            every_s=every.total_seconds(),
            for_s=None if for_ is None else for_.total_seconds(),
        )
        try:
            asyncio.run(_record(wanted, tally, kubeconfig, context))
        except KeyboardInterrupt:
            pass
        except asyncio.CancelledError:
            code = ENDED
        except ForbiddenPageError as error:
            refuse(f"The pods of {wanted.key} cannot be read: {error}.")
    if not tally.lines:
        typer.echo(f"Nothing was recorded: no pod of {wanted.key} could be read.", err=True)
        raise typer.Exit(code or NOTHING)
    typer.echo(f"Written: {file} ({tally})")
    raise typer.Exit(code)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    """What is to be recorded."""

    key: ObjectKey
    file: Path
    force: bool
    every_s: float
    for_s: float | None


async def _record(wanted: _Wanted, tally: Tally, kubeconfig: Path | None, context: str) -> None:
    end_when_told()
    console, clock, key = Console(stderr=True), SystemClock(), wanted.key

    def complain(sentence: str) -> None:
        line = f"{rfc3339(clock.now_s())} {sentence}"
        console.print(line, soft_wrap=True, markup=False, highlight=False)

    configuration = await kube_config.load(kubeconfig, context)
    async with kube_config.client(configuration, redirected=False) as api:
        kube = Kube(api)
        if await kube.get(SPECULATIVE_DEPLOYMENT, key.namespace, key.name) is None:
            refuse(f"There is no SpeculativeDeployment {key}.")
        with _opened(wanted, tally) as writer, _progress(console) as show:
            recorder = Recorder(
                kube=kube,
                pages=ProxiedPages(api),
                sink=writer,
                clock=clock,
                key=key,
                complain=complain,
                tally=tally,
            )
            await follow(
                recorder,
                every_s=wanted.every_s,
                for_s=wanted.for_s,
                pause=asyncio.sleep,
                show=show,
            )


@contextmanager
def _opened(wanted: _Wanted, tally: Tally) -> Iterator[RecordingWriter]:
    """The file, which is not left where nothing was written to it: it would refuse the next one.

    Raises:
        typer.Exit: it cannot be written; stderr says why.
    """
    file = wanted.file
    try:
        with closing(RecordingWriter(file, replace=wanted.force)) as writer:
            try:
                yield writer
            finally:
                if not tally.lines and writer.path.is_file():
                    writer.path.unlink()
    except FileExistsError:
        refuse(f"{file} exists: name another one by -o, or overwrite it by --force.")
    except OSError as error:
        refuse(f"{file}: cannot be written: {error.strerror}.")


@contextmanager
def _progress(console: Console) -> Iterator[Callable[[Tally], None]]:
    """A line that says how far it is, where a terminal shows it."""
    if not console.is_terminal:
        yield lambda _: None
        return
    with Live(Text(""), console=console, auto_refresh=False, transient=True) as live:
        yield lambda tally: live.update(Text(str(tally)), refresh=True)
