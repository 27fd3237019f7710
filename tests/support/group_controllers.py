"""Who makes groups and ComputeDomains in a test: the real controllers, else those that play them.

`FATHOM_GROUP_CONTROLLERS` names a folder with the real ones; CONTRIBUTING.md says what lies in it.
"""

import base64
import os
import shutil
import ssl
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import yaml

from local_cluster.control_plane.credentials import Credentials
from local_cluster.engine.process import free_port
from local_cluster.errors import LocalClusterError
from local_cluster.kube import Object
from local_cluster.processes import (
    ProcessRecord,
    daemon_environment,
    last_lines,
    start_daemon,
    stop_processes,
)
from support.foreign_kinds import crd
from support.group_watch import GroupWatch, unless, watched_groups
from support.local_cluster import TestNamespace
from support.operator_process import CRDS, install_crd
from support.played_compute_domains import PlayedComputeDomains, published_channels, serves_claims
from support.played_groups import PlayedGroups
from support.waiting import until

FOLDER = "FATHOM_GROUP_CONTROLLERS"
LEADER_WORKER_SETS = "lws"
COMPUTE_DOMAINS = "compute-domain-controller"
TEMPLATES = "templates"
KINDS = ("leaderworkersets.yaml", "computedomains.yaml")
DEFINITION = "CustomResourceDefinition"
WEBHOOKS: Mapping[str, str] = {
    "MutatingWebhookConfiguration": "mutatingwebhookconfigurations",
    "ValidatingWebhookConfiguration": "validatingwebhookconfigurations",
}
NEEDED = (
    (DEFINITION, "leaderworkersets.leaderworkerset.x-k8s.io"),
    (DEFINITION, "computedomains.resource.nvidia.com"),
    *((kind, "") for kind in WEBHOOKS),
)
"""Kinds and names of manifests; with an empty one any does."""
ADMISSION = "/apis/admissionregistration.k8s.io/v1"


@dataclass(frozen=True, slots=True)
class RealControllers:
    """A folder with both."""

    folder: Path
    definitions: tuple[Object, ...]
    webhooks: tuple[Object, ...]
    """LeaderWorkerSet's."""


def real_controllers() -> RealControllers | None:
    """What `FATHOM_GROUP_CONTROLLERS` names, if it is set.

    Raises:
        LocalClusterError: it is set, and the folder lacks something.
    """
    named = os.environ.get(FOLDER)
    if not named:
        return None
    folder = Path(named).absolute()
    for program in (LEADER_WORKER_SETS, COMPUTE_DOMAINS):
        if not os.access(folder / program, os.X_OK):
            raise _missing(folder, f"an executable {program}")
    if not any((folder / TEMPLATES).glob("compute-domain-*")):
        raise _missing(folder, f"{TEMPLATES}/, from the source of {COMPUTE_DOMAINS}")
    manifests = [
        manifest
        for file in sorted(folder.glob("*.yaml"))
        for manifest in yaml.safe_load_all(file.read_text(encoding="utf-8"))
        if manifest
    ]
    for kind, name in NEEDED:
        if not any(
            each["kind"] == kind and name in {"", each["metadata"]["name"]} for each in manifests
        ):
            raise _missing(folder, f"a *.yaml with the {kind} {name or 'of LeaderWorkerSet'}")
    return RealControllers(
        folder,
        tuple(each for each in manifests if each["kind"] == DEFINITION),
        tuple(each for each in manifests if each["kind"] in WEBHOOKS),
    )


def _missing(folder: Path, what: str) -> LocalClusterError:
    return LocalClusterError(
        f"{folder}, which {FOLDER} names, lacks {what}. Put it there (CONTRIBUTING.md says what "
        f"the folder holds), or unset {FOLDER} to have the controllers played."
    )


@asynccontextmanager
async def group_controllers(namespace: TestNamespace, directory: Path) -> AsyncIterator[GroupWatch]:
    """Both kinds, and somebody who makes groups and domains of them; a watch on one namespace.

    Args:
        namespace: where it is watched.
        directory: for what real controllers need beside the folder, and their logs.

    Raises:
        LocalClusterError: the real ones are asked for and cannot run.
    """
    real = real_controllers()
    claims = await serves_claims(namespace.api)
    if real is not None and not claims:
        raise LocalClusterError(
            f"The controllers that {FOLDER} names need Kubernetes 1.34 or newer, and this cluster "
            "serves no resource.k8s.io/v1. Name the programs of such a control plane with "
            f"KUBEBUILDER_ASSETS, or unset {FOLDER}."
        )
    definitions = [crd(file) for file in KINDS] if real is None else list(real.definitions)
    players = [PlayedGroups(namespace), PlayedComputeDomains(namespace, claims=claims)]
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(published_channels(namespace.api))
        try:
            for definition in definitions:
                await install_crd(namespace, definition)
            if real is not None:
                await stack.enter_async_context(_running(real, namespace, directory))
            yield await stack.enter_async_context(
                watched_groups(namespace, players if real is None else ())
            )
        finally:
            # While the controllers still run: what is left has their finalizers.
            await _remove(namespace, definitions)


async def _remove(namespace: TestNamespace, definitions: Sequence[Object]) -> None:
    names = {definition["metadata"]["name"] for definition in definitions}
    for name in names:
        await unless(404, namespace.api.request("DELETE", f"{CRDS}/{name}"))

    async def gone() -> bool:
        listed = await namespace.api.request("GET", CRDS)
        return not names & {each["metadata"]["name"] for each in listed["items"]}

    await until(gone, "the kinds of groups and domains are gone")


@asynccontextmanager
async def _running(
    real: RealControllers, namespace: TestNamespace, directory: Path
) -> AsyncIterator[None]:
    plane = namespace.cluster.state.control_plane
    assert plane is not None
    kubeconfig = _portable(plane.kubeconfig)
    with _processes() as processes:
        port = free_port()
        processes[LEADER_WORKER_SETS] = _start_leader_worker_sets(
            real, directory, kubeconfig, plane.credentials, port
        )
        processes[COMPUTE_DOMAINS] = _start_compute_domains(real, directory, kubeconfig)
        hooks = [_on_loopback(each, port, plane.credentials) for each in real.webhooks]
        await _answering(hooks, plane.credentials, lambda: _still_run(processes, directory))
        async with _called(hooks, namespace):
            yield
        _still_run(processes, directory)


def _still_run(processes: Mapping[str, ProcessRecord], directory: Path) -> None:
    for name, process in processes.items():
        if process.find() is None:
            log = _log(directory, name)
            raise LocalClusterError(
                f"{name} has ended by itself; the end of {log}:\n{last_lines(log)}"
            )


@contextmanager
def _processes() -> Iterator[dict[str, ProcessRecord]]:
    processes: dict[str, ProcessRecord] = {}
    try:
        yield processes
    finally:
        stop_processes(list(processes.values()))


def _start_leader_worker_sets(
    real: RealControllers,
    directory: Path,
    kubeconfig: Object,
    credentials: Credentials,
    port: int,
) -> ProcessRecord:
    home = directory / LEADER_WORKER_SETS
    home.mkdir()
    (home / "kubeconfig").write_text(yaml.safe_dump(kubeconfig))
    # The API server's own certificate is good for loopback too, and so for the webhooks.
    shutil.copy(credentials.server_certificate, home / "tls.crt")
    shutil.copy(credentials.server_key, home / "tls.key")
    configuration = {
        "apiVersion": "config.lws.x-k8s.io/v1alpha1",
        "kind": "Configuration",
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": False},
        "webhook": {"host": "127.0.0.1", "port": port, "certDir": str(home)},
        "metrics": {"bindAddress": "0"},
        "health": {"healthProbeBindAddress": "0"},
    }
    (home / "config.yaml").write_text(yaml.safe_dump(configuration))
    program = str(real.folder / LEADER_WORKER_SETS)
    flags = [f"--kubeconfig={home / 'kubeconfig'}", f"--config={home / 'config.yaml'}"]
    return _start(directory, LEADER_WORKER_SETS, [program, *flags])


def _start_compute_domains(
    real: RealControllers, directory: Path, kubeconfig: Object
) -> ProcessRecord:
    """In a root of its own: it looks for its templates in /templates."""
    root = directory / COMPUTE_DOMAINS
    root.mkdir()
    shutil.copy(real.folder / COMPUTE_DOMAINS, root)
    shutil.copytree(real.folder / TEMPLATES, root / TEMPLATES)
    (root / "kubeconfig").write_text(yaml.safe_dump(kubeconfig))
    flags = [
        "--kubeconfig=/kubeconfig",
        "--pod-name=controller",
        "--image-name=none",
        "--log-verbosity-cd-daemon=0",
    ]
    return _start(directory, COMPUTE_DOMAINS, ["chroot", str(root), f"/{COMPUTE_DOMAINS}", *flags])


def _start(directory: Path, name: str, command: Sequence[str]) -> ProcessRecord:
    return start_daemon(name, command, log=_log(directory, name), env=daemon_environment())


def _log(directory: Path, name: str) -> Path:
    return directory / f"{name}.log"


async def _answering(
    hooks: Sequence[Object], credentials: Credentials, check: Callable[[], None]
) -> None:
    """Waits until each webhook has somebody who answers."""
    urls = [each["clientConfig"]["url"] for hook in hooks for each in hook["webhooks"]]
    verify = ssl.create_default_context(cafile=str(credentials.ca_certificate))
    async with httpx.AsyncClient(verify=verify, trust_env=False) as client:

        async def answer() -> bool:
            check()
            try:
                answers = [await client.get(url) for url in urls]
            except httpx.TransportError:
                return False
            return all(each.status_code != httpx.codes.NOT_FOUND for each in answers)

        await until(answer, "LeaderWorkerSet's webhooks answer")


@asynccontextmanager
async def _called(hooks: Sequence[Object], namespace: TestNamespace) -> AsyncIterator[None]:
    """The API server asks them; it makes no pod once they are gone, so they are taken back."""
    paths = []
    try:
        for hook in hooks:
            path = f"{ADMISSION}/{WEBHOOKS[hook['kind']]}"
            await namespace.api.request("POST", path, body=hook)
            paths.append(f"{path}/{hook['metadata']['name']}")
        yield
    finally:
        for path in paths:
            await namespace.api.request("DELETE", path)


def _on_loopback(configuration: Object, port: int, credentials: Credentials) -> Object:
    bundle = base64.b64encode(credentials.ca_certificate.read_bytes()).decode()

    def moved(webhook: Object) -> Object:
        path = webhook["clientConfig"]["service"]["path"]
        url = f"https://127.0.0.1:{port}{path}"
        return webhook | {"clientConfig": {"url": url, "caBundle": bundle}}

    return configuration | {"webhooks": [moved(each) for each in configuration["webhooks"]]}


def _portable(kubeconfig: Path) -> Object:
    """It names no files."""
    config: Object = yaml.safe_load(kubeconfig.read_text())
    for each in config["clusters"]:
        authority = Path(each["cluster"].pop("certificate-authority")).read_bytes()
        each["cluster"]["certificate-authority-data"] = base64.b64encode(authority).decode()
    return config
