"""What several commands share: options, the resource they are about, how they refuse.

Of a resource only annotations are ever written from here: what is in `spec` belongs to whoever
applies it, and a tool that syncs it from Git would put back what it did not write.
"""

import asyncio
import signal
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from http import HTTPStatus
from pathlib import Path
from typing import Annotated, Final, NoReturn, TypeVar

import durationpy
import typer
from pydantic import JsonValue
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from fathom.adapters import kube_config
from fathom.adapters.kube_config import NoClusterError
from fathom.adapters.ports import KubeError, KubePort
from fathom.api.problem import Problem
from fathom.cli.arguments import Asked
from fathom.cli.cluster import Listed, connected
from fathom.cli.documents import Output
from fathom.cli.resources import REFUSED
from fathom.cluster.kinds import RESOURCE_KINDS, SPECULATIVE_DEPLOYMENT, ObjectKey
from fathom.page.subject import Subject
from fathom.resource import SpeculativeDeployment

_Found = TypeVar("_Found")
_Read = TypeVar("_Read")

EVERY_S: Final = 2.0
"""Between two reads of what is watched."""
_ENDLESS: Final = 10_000
"""Columns, where no window bounds them."""
ENDED: Final = 143
"""Exit code: it was told to end."""
Namespace = Annotated[
    str, typer.Option("-n", "--namespace", help="Default: the context's, as with kubectl.")
]
Context = Annotated[str, typer.Option(help="Of the kubeconfig; default: its current one.")]
Kubeconfig = Annotated[
    Path | None, typer.Option(help="Default: what KUBECONFIG names, else ~/.kube/config.")
]


AllNamespaces = Annotated[
    bool, typer.Option("-A", "--all-namespaces", help="Those of all namespaces.")
]
Watch = Annotated[
    bool, typer.Option("-w", "--watch", help="Refresh every 2 seconds, until Ctrl-C.")
]


def duration(text: str) -> timedelta:
    """The value of an option, such as `30s`, `10m` or `7d`.

    Raises:
        typer.BadParameter: it is none, or not above 0.
    """
    try:
        length: timedelta = durationpy.from_str(text)
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} is not a duration such as 30s, 24h or 7d.") from error
    if length <= timedelta():
        raise typer.BadParameter(f"{text!r} is too short: give a duration above 0.")
    return length


@contextmanager
def refusing() -> Iterator[None]:
    """Turns what a cluster cannot give into a sentence and exit code 2."""
    try:
        yield
    except NoClusterError as error:
        refuse(str(error))
    except KubeError as error:
        refuse(kube_sentence(error))


def refuse(sentence: str) -> NoReturn:
    """Say why on stderr, and end.

    Raises:
        typer.Exit: always, with exit code 2.
    """
    typer.echo(sentence, err=True)
    raise typer.Exit(REFUSED)


def kube_sentence(error: KubeError) -> str:
    """What went wrong with the API server, and what to look at."""
    if error.forbidden:
        return f"The API server does not let you do this: {error.message}"
    if error.gone:
        return (
            f"The cluster does not know SpeculativeDeployments ({error.message.strip()}): install "
            "Fathom's chart, or choose another cluster with KUBECONFIG or --context."
        )
    if error.outdated:
        return (
            f"The API server refuses it, since something else was written meanwhile: "
            f"{error.message.strip().rstrip('.')}. Run it again."
        )
    if error.status == HTTPStatus.UNAUTHORIZED:
        return (
            f"The API server does not accept your login: {error.message.strip().rstrip('.')}. Log "
            "in again, or choose another one with KUBECONFIG or --context."
        )
    if error.transient:
        return f"The API server cannot be asked: {error.message}"
    return f"The API server refuses it: {error.message}"


def end_when_told() -> None:
    """A job of CI that is cancelled, and a terminal that is closed, end it as Ctrl-C does.

    Not where whoever started it, such as `nohup`, has said that it shall go on.
    """
    if (task := asyncio.current_task()) is not None:
        for each in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(each) is not signal.SIG_IGN:
                asyncio.get_running_loop().add_signal_handler(each, task.cancel)


def on_resource(
    name: str,
    act: Callable[[KubePort, ObjectKey], Awaitable[_Found | None]],
    *,
    namespace: str,
    context: str,
    kubeconfig: Path | None,
) -> tuple[ObjectKey, _Found]:
    """Read one SpeculativeDeployment, or ask something of it.

    Args:
        name: of it.
        act: what to do; None: there is none of that name.
        namespace: where it is; empty: the context's.
        context: of the kubeconfig; empty: its current one.
        kubeconfig: None: as kubectl finds it.

    Returns:
        Which one it was, and what came of it.

    Raises:
        typer.Exit: there is none, or the cluster cannot be asked; stderr says so.
    """
    return on_either(
        Asked(name, SPECULATIVE_DEPLOYMENT),
        act,
        namespace=namespace,
        context=context,
        kubeconfig=kubeconfig,
    )


def on_either(
    asked: Asked,
    act: Callable[[KubePort, ObjectKey], Awaitable[_Found | None]],
    *,
    namespace: str,
    context: str,
    kubeconfig: Path | None,
) -> tuple[ObjectKey, _Found]:
    """The same of a resource of either kind."""
    where = chosen_namespace(namespace, context=context, kubeconfig=kubeconfig)
    return from_cluster(
        lambda kube: first_of(kube, asked, where, act), context=context, kubeconfig=kubeconfig
    )


async def first_of(
    kube: KubePort,
    asked: Asked,
    namespace: str,
    act: Callable[[KubePort, ObjectKey], Awaitable[_Found | None]],
) -> tuple[ObjectKey, _Found]:
    """The first of those that may be meant, and what came of it.

    Raises:
        KubeError: the cluster cannot be asked.
        typer.Exit: there is none; stderr says so.
    """
    keys = asked.keys(namespace)
    for key in keys:
        try:
            found = await act(kube, key)
        except KubeError as error:
            if key == keys[0] or not error.forbidden:
                raise
            unknown = "Whether there is a SpeculationTuner of that name is not known."
            refuse(f"{none_of(keys[0])} {unknown} {kube_sentence(error)}")
        if found is not None:
            return key, found
    refuse(none_of(keys[0]))


def none_of(key: ObjectKey) -> str:
    """That there is no such resource."""
    return f"There is no {key.kind.kind} {key.namespace}/{key.name}."


def refuse_watched_document(*, watch: bool, output: Output) -> None:
    """Refuse -w with -o.

    Raises:
        typer.Exit: both were given; stderr says so.
    """
    if watch and output is not Output.TEXT:
        refuse("Give either -w or -o: -w redraws a screen, and -o prints once.")


def chosen_namespace(
    namespace: str, *, everywhere: bool = False, context: str, kubeconfig: Path | None
) -> str:
    """The namespace that is named, else the context's; empty: all of them.

    Args:
        namespace: as it was named; empty: it was not.
        everywhere: whether all namespaces are asked for.
        context: of the kubeconfig; empty: its current one.
        kubeconfig: None: as kubectl finds it.

    Raises:
        typer.Exit: there is no such kubeconfig or context; stderr says so.
    """
    if everywhere:
        return ""
    with refusing():
        return namespace or kube_config.namespace(kubeconfig, context)


def from_cluster(
    read: Callable[[KubePort], Awaitable[_Read]], *, context: str, kubeconfig: Path | None
) -> _Read:
    """What is read from a cluster.

    Raises:
        typer.Exit: the cluster cannot be asked; stderr says so.
    """

    async def connect_and_read() -> _Read:
        async with connected(kubeconfig, context) as kube:
            return await read(kube)

    with refusing():
        return asyncio.run(connect_and_read())


def watch_cluster(
    read: Callable[[KubePort], Awaitable[_Read]],
    draw: Callable[[_Read], RenderableType],
    *,
    context: str,
    kubeconfig: Path | None,
) -> None:
    """Draw what is read, again every 2 seconds, until Ctrl-C.

    Raises:
        typer.Exit: the cluster cannot be asked at first; stderr says so. Later a line below what
            was read last says so: what is gone for a moment need not end the watching.
    """

    async def watch() -> None:
        async with connected(kubeconfig, context) as kube:
            drawn = draw(await read(kube))
            with Live(drawn, console=Console(), auto_refresh=False) as live:
                while True:
                    await asyncio.sleep(EVERY_S)
                    try:
                        drawn = draw(await read(kube))
                        live.update(drawn, refresh=True)
                    except KubeError as error:
                        trouble = f"{kube_sentence(error)} What is shown is older."
                        live.update(Group(drawn, Text(trouble, style="red")), refresh=True)

    with refusing(), suppress(KeyboardInterrupt):
        asyncio.run(watch())


def print_whole(console: Console, shown: RenderableType) -> None:
    """Print; where it is no terminal, as wide as it takes: somebody may search it for an alarm."""
    if not console.is_terminal:
        endless = console.options.update(max_width=_ENDLESS)
        console.width = max(console.width, console.measure(shown, options=endless).maximum)
    console.print(shown)


def no_resource(namespace: str, listed: Listed) -> str:
    """That there is none in a namespace, of a kind that may be listed; empty: in any."""
    kind = next(each for each in RESOURCE_KINDS if each not in listed.left_out)
    where = f"namespace {namespace}" if namespace else "any namespace"
    return f"There is no {kind.kind} in {where}."


def left_out(listed: Listed) -> tuple[str, ...]:
    """A sentence for each kind that may not be listed."""
    return tuple(
        f"{kind.kind}s are left out. {kube_sentence(error)}"
        for kind, error in listed.left_out.items()
    )


def valid(key: ObjectKey, live: Subject) -> SpeculativeDeployment:
    """The spec of a resource, for what needs its settings.

    Raises:
        typer.Exit: it is refused; stderr says why.
    """
    if isinstance(live.resource, tuple):
        refuse_problems(key, live.resource)
    return live.resource


def refuse_problems(key: ObjectKey, found: tuple[Problem, ...]) -> NoReturn:
    """Say what is wrong with a spec, and end.

    Raises:
        typer.Exit: always, with exit code 2.
    """
    problems = "\n".join(f"  {each}" for each in found)
    refuse(f"The spec of {key} is refused, so there are no settings to explain:\n{problems}")


async def annotate(kube: KubePort, key: ObjectKey, annotation: str, value: str | None) -> bool:
    """Set an annotation of a SpeculativeDeployment. Idempotent.

    Args:
        kube: the cluster.
        key: of the resource.
        annotation: its name.
        value: None: it is removed.

    Returns:
        False: there is no such resource.

    Raises:
        KubeError: it could not be written.
    """
    patch: dict[str, JsonValue] = {"metadata": {"annotations": {annotation: value}}}
    asked = await kube.merge(SPECULATIVE_DEPLOYMENT, key.namespace, key.name, patch, None)
    return asked is not None
