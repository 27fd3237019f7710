"""`fathom attach`: what vLLM pods that Fathom did not start can have, and the patch for it."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, TypeVar

import typer

from fathom.adapters import kube_config
from fathom.adapters.kube import Kube
from fathom.adapters.pod_metrics import ForbiddenPageError, ProxiedPages
from fathom.adapters.ports import KubePort, SystemClock
from fathom.adapters.yaml_documents import to_yaml
from fathom.api import names
from fathom.attach.host import HostError, host_of, host_of_pods, selector_of
from fathom.attach.patch import (
    FORM_OF,
    Attachment,
    Printed,
    helm_values,
    kustomize_component,
    plugin_manifest,
    remarks,
    template_patch,
    tuner_manifest,
    why_not,
    workload_patch,
)
from fathom.attach.startup import startup_of
from fathom.cli.arguments import objects_beginning
from fathom.cli.attach_report import (
    AttachReport,
    Found,
    Reader,
    all_live,
    lines_of,
    pod_lines,
    report_of,
)
from fathom.cli.documents import AsOutput, Output, written
from fathom.cli.options import (
    Context,
    Kubeconfig,
    Namespace,
    chosen_namespace,
    refuse,
    refusing,
)
from fathom.cluster.kinds import (
    DEPLOYMENT,
    LEADER_WORKER_SET,
    LLM_INFERENCE_SERVICE,
    POD,
    STATEFUL_SET,
    Kind,
)
from fathom.cluster.manifest import Manifest
from fathom.cluster.observed_pods import ObservedPod
from fathom.engine.plugin import plugin_bundle
from fathom.manifests.template_parts import part
from fathom_vllm.bundle import bundle_zip

NOT_LIVE: Final = 1
"""Exit code of `--check`: not every pod is Live."""
_WORDS: Final[Mapping[Kind, tuple[str, ...]]] = {
    DEPLOYMENT: ("deployment", "deployments", "deploy"),
    STATEFUL_SET: ("statefulset", "statefulsets", "sts"),
    LEADER_WORKER_SET: ("leaderworkerset", "leaderworkersets", "lws"),
    LLM_INFERENCE_SERVICE: ("llminferenceservice", "llminferenceservices", "llmisvc"),
}
"""What people call each kind; kubectl's own words."""
_Result = TypeVar("_Result")
_Reported = tuple[Attachment, AttachReport]
app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


def kind_and_name(workload: str) -> tuple[Kind, str]:
    """What `deployment/qwen` means.

    Raises:
        HostError: nothing that is known.
    """
    word, _, name = workload.partition("/")
    for kind, words in _WORDS.items():
        if name and word.lower().split(".")[0] in words:
            return kind, name
    known = ", ".join(f"{words[0]}/NAME" for words in _WORDS.values())
    raise HostError(f"{workload} is no workload that can be read: write {known}, or -l SELECTOR.")


def labels_in(selector: str) -> Mapping[str, str]:
    """The labels of `-l`.

    Raises:
        HostError: it says something else.
    """
    pairs = [each.strip().partition("=") for each in selector.split(",")]
    found = {key: value.removeprefix("=") for key, _, value in pairs}
    if any(not key or key.endswith("!") or " " in key or not value for key, value in found.items()):
        raise HostError(f"-l {selector} cannot be read: write labels, such as -l app=qwen,role=a.")
    return found


def workloads_beginning(ctx: typer.Context, incomplete: str) -> list[str]:
    """Workloads whose kind and name begin so, or kinds alone."""
    word, slash, begun = incomplete.partition("/")
    if not slash:
        found = (f"{kind.kind.lower()}/" for kind in FORM_OF)
        return [each for each in found if each.startswith(incomplete)]
    try:
        kind, _ = kind_and_name(f"{word}/any")
    except HostError:
        return []
    return [f"{word}/{name}" for name in objects_beginning(ctx, begun, kind)]


@app.command(no_args_is_help=True)
def attach_command(
    workload: Annotated[
        str,
        typer.Argument(
            metavar="WORKLOAD",
            autocompletion=workloads_beginning,
            help="deployment/NAME, statefulset/NAME, leaderworkerset/NAME or "
            "llminferenceservice/NAME.",
        ),
    ] = "",
    *,
    selector: Annotated[
        str, typer.Option("-l", "--selector", help="In place of WORKLOAD: labels of the pods.")
    ] = "",
    print_: Annotated[
        Printed | None,
        typer.Option("--print", help="Print this alone, as YAML, to be redirected."),
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="After the restart: a line for each pod.")
    ] = False,
    name: Annotated[
        str, typer.Option(help="Of the SpeculationTuner; default: the workload's.")
    ] = "",
    container: Annotated[
        str, typer.Option("-c", "--container", help="That runs vLLM, where its name is unusual.")
    ] = "",
    seconds: Annotated[
        float, typer.Option(min=0, max=600, help="Between two scrapes for acceptance; 0: one.")
    ] = 10.0,
    namespace: Namespace = "",
    context: Context = "",
    kubeconfig: Kubeconfig = None,
    output: AsOutput = Output.TEXT,
) -> None:
    """Say what vLLM pods that Fathom did not start can have, and print the patch.

    It reads the workload, its pods and, through the API server, their /metrics: you need the right
    to get pods/proxy. It changes nothing. What the arguments do not say is left as a placeholder
    in the patch, and is reported on stderr.

    Exit codes: 0, read or printed; with --check, 1 unless every pod is Live; 2, refused.

    Example: fathom attach deployment/qwen -n llm

    Example: fathom attach deployment/qwen -n llm --print deployment
    """
    if bool(workload) == bool(selector):
        refuse("Name a WORKLOAD, such as deployment/qwen, or pods by -l.")
    if print_ is not None and (check or output is not Output.TEXT):
        refuse("Give --print alone: it prints YAML, and neither checks nor reports.")
    wanted = _Wanted(
        workload=workload,
        selector=selector,
        container=container,
        tuner=name,
        namespace=chosen_namespace(namespace, context=context, kubeconfig=kubeconfig),
    )
    if print_ is not None:
        print_object(_asked(wanted, _itself, context=context, kubeconfig=kubeconfig), print_)
        return
    between_s = None if check else seconds

    async def look(attachment: Attachment, found: Found, reader: Reader) -> _Reported:
        return attachment, await report_of(attachment, found, reader, between_s)

    attachment, report = _asked(wanted, look, context=context, kubeconfig=kubeconfig)
    if output is not Output.TEXT:
        typer.echo(written(report, output))
    else:
        for line in pod_lines(report) if check else lines_of(report, _written(attachment)):
            typer.echo(line)
    if check and not all_live(report):
        raise typer.Exit(NOT_LIVE)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    """Which pods are meant, and how their tuner is to be called."""

    workload: str
    selector: str
    container: str
    tuner: str
    namespace: str


async def _itself(attachment: Attachment, _found: Found, _reader: Reader) -> Attachment:
    return attachment


def _asked(
    wanted: _Wanted,
    act: Callable[[Attachment, Found, Reader], Awaitable[_Result]],
    *,
    context: str,
    kubeconfig: Path | None,
) -> _Result:
    """What comes of asking the cluster.

    Raises:
        typer.Exit: it cannot be asked, or has no such pods; stderr says so.
    """

    async def run() -> _Result:
        configuration = await kube_config.load(kubeconfig, context)
        async with kube_config.client(configuration, redirected=False) as api:
            reader = Reader(pages=ProxiedPages(api), clock=SystemClock(), pause=asyncio.sleep)
            found = await find(
                Kube(api),
                wanted.namespace,
                wanted.workload,
                selector=wanted.selector,
                container=wanted.container,
            )
            return await act(_attachment(found, wanted.tuner), found, reader)

    with refusing():
        try:
            return asyncio.run(run())
        except HostError as error:
            refuse(str(error))
        except ForbiddenPageError as error:
            refuse(f"The pods cannot be read: {error}.")


async def find(
    kube: KubePort, namespace: str, workload: str, *, selector: str = "", container: str = ""
) -> Found:
    """Read a workload and its pods.

    Raises:
        HostError: there is none, or no patch can be made for it.
        KubeError: it cannot be read.
    """
    if selector:
        labels = labels_in(selector)
        pods = await _pods(kube, namespace, labels)
        if not pods:
            raise HostError(f"No pod of namespace {namespace} has the labels {selector}.")
        host = host_of_pods(namespace, labels, pods[0], container)
        return Found(host=host, pods=_observed(pods))
    kind, name = kind_and_name(workload)
    manifest = await kube.get(kind, namespace, name)
    if manifest is None:
        raise HostError(f"There is no {kind.kind} {namespace}/{name}.")
    host = host_of(kind, manifest, None, container)
    pods = await _pods(kube, namespace, host.labels)
    if pods:
        host = host_of(kind, manifest, part(pods[0], "spec"), container)
    return Found(host=host, pods=_observed(pods))


async def _pods(kube: KubePort, namespace: str, labels: Mapping[str, str]) -> tuple[Manifest, ...]:
    found = await kube.select(POD, namespace, selector_of(labels))
    return tuple(each for each in found if not _ended(ObservedPod.model_validate(each)))


def _ended(pod: ObservedPod) -> bool:
    return pod.finished or pod.terminating


def _observed(pods: Sequence[Manifest]) -> tuple[ObservedPod, ...]:
    return tuple(map(ObservedPod.model_validate, pods))


def _attachment(found: Found, name: str) -> Attachment:
    """What is to be added.

    Raises:
        HostError: the tuner has no name.
    """
    host = found.host
    if not (name or host.name):
        raise HostError("Name the SpeculationTuner by --name: pods by -l have no name in common.")
    return Attachment(
        host=host,
        startup=startup_of(host.engine),
        tuner=name or host.name,
        plugin=names.plugin_config_map("fathom", plugin_bundle().content),
    )


def _written(attachment: Attachment) -> str:
    """How to print what is to be applied."""
    host = attachment.host
    form = FORM_OF.get(host.kind) if host.kind else Printed.POD
    helm = host.managed_by == "Helm" and form in {Printed.DEPLOYMENT, Printed.POD}
    other = f" (or {Printed.HELM}, for production-stack's chart)" if helm else ""
    return (
        f"--print {Printed.TUNER} now; for Live then --print {Printed.PLUGIN} and --print "
        f"{form}{other}, and restart"
    )


def print_object(attachment: Attachment, form: Printed) -> None:
    """The object to stdout, and what is left to do to stderr, and above it."""
    document = _document(attachment, form)
    of_engine = form not in {Printed.PLUGIN, Printed.TUNER}
    for line in remarks(attachment, form):
        typer.echo(f"# {line}")
    typer.echo(to_yaml([document]).removeprefix("---\n"), nl=False)
    for each in attachment.to_do if of_engine else ():
        typer.echo(f"To do: {each}", err=True)


def _document(attachment: Attachment, form: Printed) -> Manifest:
    host = attachment.host
    if form is Printed.PLUGIN:
        return plugin_manifest(host.namespace, attachment.plugin, bundle_zip())
    if form is Printed.TUNER:
        return tuner_manifest(host, attachment.tuner)
    if form is Printed.HELM:
        return helm_values(attachment)
    if why := why_not(host, form):
        refuse(why)
    if form is Printed.POD:
        return template_patch(attachment)
    patch = workload_patch(attachment)
    if form is not Printed.KUSTOMIZE:
        return patch
    return kustomize_component(host, to_yaml([patch]).removeprefix("---\n"))
