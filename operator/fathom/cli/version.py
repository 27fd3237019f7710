"""`fathom version`: which Fathom this is, which operators run, and what is in the pods.

What cannot be read is not known, and no error: whoever has no cluster still has a client.
"""

import asyncio
import re
from collections.abc import Awaitable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final, Literal, TypeVar

import typer
from rich.console import Console
from rich.table import Table

from fathom import __version__, build_name, version_and_build
from fathom.adapters import kube_config
from fathom.adapters.kube_config import NoClusterError
from fathom.adapters.ports import KubeError, KubePort
from fathom.api import names
from fathom.cli.cluster import connected
from fathom.cli.documents import AsOutput, Document, Output, Part, written
from fathom.cli.options import (
    AllNamespaces,
    Context,
    Kubeconfig,
    Namespace,
    kube_sentence,
    print_whole,
)
from fathom.cluster.kinds import DEPLOYMENT, POD
from fathom.cluster.manifest import Meta, ObservedModel, absent_as
from fathom.cluster.observed_pods import ObservedPod
from fathom.engine.plugin import plugin_bundle
from fathom.health import UNKNOWN
from fathom.text import counted

_Found = TypeVar("_Found")

_OPERATORS: Final = "app.kubernetes.io/name=fathom"
"""By the chart, the kustomization and the bundle; `nameOverride` of the chart changes it."""
_VERSION: Final = "app.kubernetes.io/version"
_OPERATOR_CONTAINER: Final = "operator"
_CONTENT: Final = re.compile("[0-9a-f]{12}")
app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


class Compared(StrEnum):
    """The plugin in a pod, compared with the one that this client would deliver."""

    SAME = "as this client"
    ANOTHER = "another"
    UNKNOWN = "unknown"


class ClientVersion(Part):
    """This program."""

    version: str
    build: str | None
    """None: nothing says which."""
    plugin: str
    """Hash of the plugin's content."""


class OperatorVersion(Part):
    """One Deployment of an operator."""

    namespace: str
    name: str
    version: str | None
    """As its label says; None: it has none."""
    image: str | None
    ready: int
    replicas: int
    """That are wanted."""


class PodPlugin(Part):
    """One pod of a SpeculativeDeployment."""

    namespace: str
    name: str
    """The SpeculativeDeployment."""
    pod: str
    plugin: str | None
    """Hash of the content of what it mounts; None: it mounts none, as with mode Static."""
    compared: Compared


class VersionReport(Document):
    """The document of `fathom version`."""

    kind: Literal["VersionReport"] = "VersionReport"
    client: ClientVersion
    operators: tuple[OperatorVersion, ...] | None = None
    """None: not known; stderr says why, unless no cluster was asked."""
    pods: tuple[PodPlugin, ...] | None = None
    """Likewise."""


@dataclass(frozen=True, slots=True)
class InCluster:
    """What a cluster runs."""

    operators: tuple[OperatorVersion, ...] | None
    pods: tuple[PodPlugin, ...] | None
    unknown: tuple[str, ...]
    """Why each that is None is not known, in sentences."""


class _Container(ObservedModel):
    name: str = ""
    image: str = ""


class _Pod(ObservedModel):
    containers: Annotated[tuple[_Container, ...], absent_as(())] = ()


class _Template(ObservedModel):
    spec: _Pod = _Pod()


class _Spec(ObservedModel):
    replicas: int = 1
    template: _Template = _Template()


class _Status(ObservedModel):
    ready_replicas: int = 0


class _Deployment(ObservedModel):
    metadata: Meta
    spec: _Spec = _Spec()
    status: _Status = _Status()

    @property
    def image(self) -> str | None:
        """What its operator runs; None: it has no such container."""
        ours = (each for each in self.spec.template.spec.containers)
        found = (each.image for each in ours if each.name == _OPERATOR_CONTAINER)
        return next(found, None)


def client_version() -> ClientVersion:
    """What this program is. Asks git, if this is a checkout."""
    build = build_name() or None
    return ClientVersion(version=__version__, build=build, plugin=plugin_bundle().content)


def operator_version(manifest: Mapping[str, object]) -> OperatorVersion:
    """What a Deployment says of the operator in it."""
    found = _Deployment.model_validate(manifest)
    return OperatorVersion(
        namespace=found.metadata.namespace,
        name=found.metadata.name,
        version=found.metadata.labels.get(_VERSION),
        image=found.image,
        ready=found.status.ready_replicas,
        replicas=found.spec.replicas,
    )


def pod_plugins(pods: Iterable[ObservedPod], ours: str) -> tuple[PodPlugin, ...]:
    """Which plugin each pod mounts.

    Args:
        pods: those that run to their end are left out.
        ours: hash of the content of this client's.
    """
    found = [_pod_plugin(each, ours) for each in pods if not each.finished]
    return tuple(sorted(found, key=lambda each: (each.namespace, each.name, each.pod)))


def _pod_plugin(pod: ObservedPod, ours: str) -> PodPlugin:
    name = pod.metadata.labels.get(names.LABEL_NAME, "")
    prefix = names.plugin_config_map(name, "")
    mounted = (
        each.removeprefix(prefix) for each in pod.spec.config_maps if each.startswith(prefix)
    )
    plugin = next((each for each in sorted(mounted) if _CONTENT.fullmatch(each)), None)
    compared = Compared.UNKNOWN
    if plugin is not None:
        compared = Compared.SAME if plugin == ours else Compared.ANOTHER
    return PodPlugin(
        namespace=pod.metadata.namespace, name=name, pod=pod.name, plugin=plugin, compared=compared
    )


async def read_cluster(kube: KubePort, namespace: str, ours: str) -> InCluster:
    """Read what a cluster runs, with the rights of whoever asks. Never raises.

    Args:
        kube: the cluster.
        namespace: of the pods; empty: all of them. Operators are anywhere.
        ours: hash of the content of this client's plugin.
    """
    operators, pods = await asyncio.gather(
        _or_why("The operators are not known", _operators(kube)),
        _or_why("The plugins in the pods are not known", _pods(kube, namespace, ours)),
    )
    unknown = tuple(each for each in (operators, pods) if isinstance(each, str))
    return InCluster(
        operators=None if isinstance(operators, str) else operators,
        pods=None if isinstance(pods, str) else pods,
        unknown=unknown,
    )


async def _or_why(what: str, reading: Awaitable[_Found]) -> _Found | str:
    try:
        return await reading
    except KubeError as error:
        return f"{what}. {kube_sentence(error)}"


async def _operators(kube: KubePort) -> tuple[OperatorVersion, ...]:
    found = await kube.select(DEPLOYMENT, "", _OPERATORS)
    return tuple(operator_version(each) for each in found)


async def _pods(kube: KubePort, namespace: str, ours: str) -> tuple[PodPlugin, ...]:
    # What fetches weights has no role.
    found = await kube.select(POD, namespace, names.LABEL_ROLE)
    return pod_plugins((ObservedPod.model_validate(each) for each in found), ours)


def _client_line(client: ClientVersion) -> str:
    return f"client    {version_and_build(client.build or '')}, plugin {client.plugin}"


def cluster_lines(found: InCluster, where: str) -> Iterator[str]:
    """What is known of a cluster, in lines.

    Args:
        found: what was read.
        where: the namespace of the pods; empty: all of them.
    """
    if found.operators == ():
        yield f"operator  none: no Deployment has the label {_OPERATORS}"
    for each in found.operators or ():
        yield (
            f"operator  {each.version or 'version not known'}, {each.namespace}/{each.name}, "
            f"{each.ready} of {counted(each.replicas, 'replica')} ready, "
            f"image {each.image or 'not known'}"
        )
    if found.pods is not None:
        place = f"namespace {where}" if where else "any namespace"
        yield f"plugins   {_summary(found.pods) or f'no pod of a SpeculativeDeployment in {place}'}"


def _summary(pods: Sequence[PodPlugin]) -> str:
    words = {
        Compared.SAME: ("has this client's plugin", "have this client's plugin"),
        Compared.ANOTHER: ("has another one", "have another one"),
        Compared.UNKNOWN: ("mounts none", "mount none"),
    }
    by = {each: sum(pod.compared is each for pod in pods) for each in Compared}
    found = [
        counted(count, f"pod {words[each][0]}", f"pods {words[each][1]}")
        for each, count in by.items()
        if count
    ]
    return ", ".join(found)


def pods_table(pods: Sequence[PodPlugin]) -> Table:
    """One row for each pod."""
    table = Table(box=None, pad_edge=False)
    for column in ("NAMESPACE", "NAME", "POD", "PLUGIN", "COMPARED"):
        table.add_column(column, no_wrap=True)
    for each in pods:
        plugin = each.plugin or UNKNOWN
        table.add_row(each.namespace, each.name, each.pod, plugin, each.compared)
    return table


@app.command()
def version_command(
    *,
    client: Annotated[bool, typer.Option("--client", help="Ask no cluster.")] = False,
    namespace: Namespace = "",
    all_namespaces: AllNamespaces = False,
    output: AsOutput = Output.TEXT,
    context: Context = "",
    kubeconfig: Kubeconfig = None,
) -> None:
    """Print the version of this client, of the operators, and of the plugin in each pod.

    An operator is a Deployment with the label app.kubernetes.io/name=fathom, in any namespace.
    Each pod's plugin is compared with the one that an operator of this client's build delivers.

    Exit code 0, also without a cluster or a right: stderr says what is not known, and why.

    Example: fathom version -n llm
    """
    ours, as_text = client_version(), output is Output.TEXT
    if as_text:
        typer.echo(_client_line(ours))
    found = InCluster(None, None, ())
    where = "" if all_namespaces else namespace
    if not client:
        try:
            if not (where or all_namespaces):
                where = kube_config.namespace(kubeconfig, context)
            found = asyncio.run(_ask(kubeconfig, context, where, ours.plugin))
        except NoClusterError as error:
            found = InCluster(None, None, (f"What runs in a cluster is not known: {error}",))
    if as_text:
        for line in cluster_lines(found, where):
            typer.echo(line)
        if found.pods:
            print_whole(Console(), pods_table(found.pods))
    else:
        report = VersionReport(client=ours, operators=found.operators, pods=found.pods)
        typer.echo(written(report, output))
    for sentence in found.unknown:
        typer.echo(sentence, err=True)


async def _ask(kubeconfig: Path | None, context: str, namespace: str, ours: str) -> InCluster:
    async with connected(kubeconfig, context) as kube:
        return await read_cluster(kube, namespace, ours)
