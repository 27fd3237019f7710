"""`fathom local`: a cluster on this machine, engines on it, and the demo."""

import asyncio
import contextlib
import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Annotated

import aiohttp
import psutil
import typer
from kubernetes.aio.client.exceptions import ApiException
from rich.console import Console
from rich.table import Table

from local_cluster.cluster import PREREQUISITES, LocalCluster, down, up
from local_cluster.control_plane.binaries import ASSETS, assets_binaries
from local_cluster.control_plane.debian_source import PREREQUISITES as BUILD_PREREQUISITES
from local_cluster.control_plane.obtain import ensure_binaries, present_binaries
from local_cluster.demo.command import demo_command, engine_command
from local_cluster.errors import LocalClusterError, explained
from local_cluster.helm import find_helm
from local_cluster.network import require_root, way_past_proxies
from local_cluster.prerequisites import missing_packages
from local_cluster.progress import setup_progress
from local_cluster.state import ClusterState, all_states, load_state

DEFAULT_NAME = "fathom"
INSTALL_SECONDS = 900.0

app = typer.Typer(name="local", help="A Kubernetes cluster on this machine.", no_args_is_help=True)
output = Console()
errors = Console(stderr=True)

app.command("engine")(engine_command)
app.command("demo")(demo_command)

Name = Annotated[str, typer.Option("--name", help="Which cluster; several can run side by side.")]


@app.command("build")
def build_command(
    version: Annotated[
        str | None, typer.Option(help="A release of Kubernetes, such as 1.34.1, downloaded.")
    ] = None,
) -> None:
    """Gets the control plane, if there is none: Kubernetes' own release, else Debian's source.

    Clusters are made of the version that was asked for last.

    Where KUBEBUILDER_ASSETS names a folder with etcd, kube-apiserver, kube-controller-manager and
    kube-scheduler, that is the control plane, and nothing is fetched.
    """
    with explained(), setup_progress(errors) as progress:
        binaries = ensure_binaries(progress, version=version)
        output.print(f"Kubernetes {binaries.version()}: {binaries.directory}", soft_wrap=True)
        own = assets_binaries(programs=())
        if own is not None and own != binaries:
            output.print(
                f"Clusters are made of {own.directory}, which {ASSETS} names: unset it to have "
                f"Kubernetes {binaries.version()}.",
                soft_wrap=True,
            )


@app.command("install-prerequisites")
def install_prerequisites_command() -> None:
    """Installs what `build` and `up` need and this machine lacks, with apt-get."""
    with explained():
        needed = PREREQUISITES | ({} if present_binaries() else BUILD_PREREQUISITES)
        packages = missing_packages(needed)
        if not packages:
            output.print("Nothing is missing.")
            return
        require_root()
        for command in (["update"], ["install", "-y", "--no-install-recommends", *packages]):
            try:
                subprocess.run(["apt-get", *command], timeout=INSTALL_SECONDS, check=True)
            except (OSError, subprocess.SubprocessError) as error:
                raise LocalClusterError(
                    f"apt-get {command[0]} failed: {error}. Install by hand: {' '.join(packages)}"
                ) from error


@app.command("up")
def up_command(
    nodes: Annotated[int, typer.Option(min=0, max=32, help="GB200 trays to simulate.")] = 2,
    name: Name = DEFAULT_NAME,
) -> None:
    """Starts a cluster, or finds it running; plain kubectl works against it."""
    began = time.monotonic()
    with explained(), setup_progress(errors) as progress:
        cluster = asyncio.run(up(name, nodes=nodes, progress=progress))
    output.print(f"The cluster {name} is up ({time.monotonic() - began:.0f} s). To use it:")
    output.print(f"  export KUBECONFIG={cluster.kubeconfig}", soft_wrap=True, highlight=False)
    if way := way_past_proxies(os.environ):
        output.print(f"  {way}", soft_wrap=True, highlight=False)
    found = present_binaries()
    kubectl = None if found is None else found.directory / "kubectl"
    if kubectl is not None and kubectl.is_file() and shutil.which("kubectl") is None:
        output.print(f"  alias kubectl={kubectl}", soft_wrap=True, highlight=False)
    if shutil.which("helm") is None:
        output.print("  alias helm='fathom local helm'", soft_wrap=True, highlight=False)
    output.print(
        "Pods' output: `fathom local logs POD`; kubectl's exec and logs -f do not work here."
    )


@app.command(
    "helm",
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    add_help_option=False,
)
def helm_command(context: typer.Context) -> None:
    """Runs Helm, or Helm's library where there is no program, as `helm` would be run."""
    with explained():
        helm = find_helm()
    given = os.environ.get("KUBECONFIG", "")
    cluster = ["--kubeconfig", given] if given else []
    variables = {**os.environ, **helm.environment}
    ran = subprocess.run([*helm.command, *context.args, *cluster], env=variables, check=False)
    raise typer.Exit(ran.returncode)


@app.command("down")
def down_command(name: Name = DEFAULT_NAME) -> None:
    """Ends a cluster and removes everything of it."""
    with explained():
        existed = down(name)
    output.print(f"The cluster {name} is gone." if existed else f"There is no cluster {name}.")


@app.command("status")
def status_command() -> None:
    """Shows the clusters of this machine and what runs in them."""
    states = all_states()
    if not states:
        output.print("No cluster. Start one with `fathom local up`.")
        return
    for state in states:
        with explained():
            output.print(_parts(state))
            if state.running:
                with contextlib.suppress(ApiException, aiohttp.ClientError, TimeoutError):
                    output.print(asyncio.run(_pods(state)))


@app.command("logs")
def logs_command(
    pod: Annotated[str, typer.Argument(help="Name of the pod, also of one that is gone.")],
    namespace: Annotated[str, typer.Option("--namespace", "-n")] = "default",
    container: Annotated[str | None, typer.Option("--container", "-c")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on as it grows.")] = False,  # noqa: FBT002 - typer's way
    name: Name = DEFAULT_NAME,
) -> None:
    """Prints a container's output, from all of its restarts."""
    with explained():
        log = _find_log(name, namespace, pod, container)
    options = ["-F"] if follow else []
    os.execvp("tail", ["tail", "-n", "+1", *options, "--", str(log)])  # noqa: S606 - becomes it


def _find_log(cluster: str, namespace: str, pod: str, container: str | None) -> Path:
    state = load_state(cluster)
    if state is None:
        raise LocalClusterError(f"There is no cluster {cluster}. `fathom local status` lists all.")
    folder = state.pod_logs / f"{namespace}_{pod}"
    logs = {path.stem: path for path in sorted(folder.glob("*.log"))}
    if not logs:
        known = sorted(
            path.name.partition("_")[2] for path in state.pod_logs.glob(f"{namespace}_*")
        )
        raise LocalClusterError(
            f"No container of the pod {namespace}/{pod} has started. "
            f"Pods with logs in {namespace}: {', '.join(known) or 'none'}."
        )
    if container is None and len(logs) == 1:
        return next(iter(logs.values()))
    if container not in logs:
        raise LocalClusterError(
            f"The pod {namespace}/{pod} has the containers {', '.join(logs)}; "
            "choose one with --container."
        )
    return logs[container]


def _parts(state: ClusterState) -> Table:
    table = Table(title=f"Cluster {state.name}", title_justify="left")
    for column in ("part", "state", "pid", "CPU s", "memory MiB"):
        table.add_column(column, justify="left" if column in ("part", "state") else "right")
    for record in state.processes:
        process = record.find()
        if process is None:
            table.add_row(record.name, "[red]ended[/red]", str(record.pid), "", "")
            continue
        with contextlib.suppress(psutil.NoSuchProcess), process.oneshot():
            times, memory = process.cpu_times(), process.memory_info()
            table.add_row(
                record.name,
                "[green]running[/green]",
                str(record.pid),
                f"{times.user + times.system:.1f}",
                f"{memory.rss / 2**20:.0f}",
            )
    return table


async def _pods(state: ClusterState) -> Table:
    table = Table(title_justify="left")
    for column in ("namespace", "pod", "node", "phase", "ready", "restarts", "address"):
        table.add_column(column)
    async with LocalCluster(state.name).api() as api:
        pods = (await api.request("GET", "/api/v1/pods"))["items"]
    for pod in pods:
        containers = pod["status"].get("containerStatuses") or []
        ready = sum(item["ready"] for item in containers)
        table.add_row(
            pod["metadata"]["namespace"],
            pod["metadata"]["name"],
            pod["spec"].get("nodeName", ""),
            pod["status"]["phase"],
            f"{ready}/{len(pod['spec']['containers'])}",
            str(sum(item["restartCount"] for item in containers)),
            pod["status"].get("podIP", ""),
        )
    return table
