"""Starts and ends whole clusters."""

import asyncio
import contextlib
import shutil
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import psutil
from kubernetes.aio.client import ApiClient
from kubernetes.aio.client.exceptions import ApiException
from rich.progress import Progress

from local_cluster.agents import start_agent, start_agents
from local_cluster.control_plane.binaries import Binaries
from local_cluster.control_plane.components import ControlPlane, start_control_plane
from local_cluster.control_plane.obtain import ensure_binaries
from local_cluster.errors import LocalClusterError
from local_cluster.images import Image
from local_cluster.kube import KubeApi, Object, connect
from local_cluster.network import (
    choose_network,
    create_network,
    delete_network,
    require_root,
)
from local_cluster.prerequisites import require_programs
from local_cluster.processes import (
    ProcessRecord,
    last_lines,
    stop_processes,
    this_process,
)
from local_cluster.progress import setup_progress
from local_cluster.state import ClusterState, all_states, load_state, locked

PREREQUISITES = {"ip": "iproute2", "nsenter": "util-linux", "sleep": "coreutils"}
NODES_READY_SECONDS = 600.0
KUBELET_EXIT_SECONDS = 5.0
POLL_SECONDS = 0.1
NOT_READY_TAINT = "node.kubernetes.io/not-ready"


@dataclass(frozen=True, slots=True)
class LocalCluster:
    """A running cluster."""

    name: str

    @property
    def state(self) -> ClusterState:
        """What is known of it now.

        Raises:
            LocalClusterError: it was removed.
        """
        state = load_state(self.name)
        if state is None:
            raise LocalClusterError(
                f"There is no cluster {self.name}. Start it with `fathom local up --name "
                f"{self.name}`."
            )
        return state

    @property
    def kubeconfig(self) -> Path:
        """The administrator's; for kubectl, Helm, and clients."""
        return self.state.kubeconfig

    @property
    def audit_log(self) -> Path:
        """For `local_cluster.control_plane.audit.read_events`."""
        if self.state.control_plane is None:
            raise LocalClusterError(f"The cluster {self.name} has no control plane.")
        return self.state.control_plane.audit_log

    @property
    def kubelet(self) -> ProcessRecord:
        """The process that runs the pods."""
        return next(record for record in self.state.agents if record.name == "kubelet")

    def pod_log(self, namespace: str, pod: str, container: str) -> Path:
        """A container's output, all of its restarts."""
        return self.state.pod_logs / f"{namespace}_{pod}" / f"{container}.log"

    @contextlib.asynccontextmanager
    async def api_client(self) -> AsyncIterator[ApiClient]:
        """A client with the administrator's rights."""
        async with connect(self.kubeconfig) as client:
            yield client

    @contextlib.asynccontextmanager
    async def api(self) -> AsyncIterator[KubeApi]:
        """The API in plain dicts, with the administrator's rights."""
        async with connect(self.kubeconfig) as client:
            yield KubeApi(client)

    def restart_kubelet(self) -> None:
        """Kills the kubelet, and with it every pod's processes, and starts another."""
        if (process := self.kubelet.find()) is not None:
            process.kill()
            psutil.wait_procs([process], timeout=KUBELET_EXIT_SECONDS)
        with locked():
            state = self.state
            agents = tuple(
                start_agent(state, record.name) if record.name == "kubelet" else record
                for record in state.agents
            )
            state.model_copy(update={"agents": agents}).save()

    @classmethod
    @contextlib.asynccontextmanager
    async def start(
        cls, name: str, nodes: int = 2, images: Sequence[Image] = ()
    ) -> AsyncIterator["LocalCluster"]:
        """A cluster for as long as the context lasts.

        What is left of an earlier one, whose process was killed, is removed first.

        Raises:
            LocalClusterError: as `up`, and where a cluster of that name is somebody else's.
        """
        cluster = await up(name, nodes=nodes, images=images, owner=this_process())
        try:
            yield cluster
        finally:
            await asyncio.to_thread(down, name)


async def up(
    name: str,
    *,
    nodes: int = 2,
    images: Sequence[Image] = (),
    progress: Progress | None = None,
    owner: ProcessRecord | None = None,
) -> LocalCluster:
    """Starts a cluster, or finds it running; builds the control plane first where needed.

    One that nobody takes down any more, since the process that it belonged to is gone, is removed
    and started anew; so is one of which a part has ended.

    Args:
        name: several clusters can run side by side.
        nodes: how many GB200 trays to simulate.
        images: entries that are added to the image table, and win over it.
        progress: where to show what is being done; on stderr when None and there is a build.
        owner: the process that will take it down; it shares no cluster that runs already.

    Raises:
        LocalClusterError: something is missing or does not start; nothing is left running then.
            Or there is an owner, and the cluster runs for somebody else; it stays as it is then.
    """
    require_root()
    require_programs(PREREQUISITES)
    with contextlib.ExitStack() as stack:
        shown = progress or stack.enter_context(setup_progress())
        binaries = await asyncio.to_thread(ensure_binaries, shown)
        await asyncio.to_thread(stack.enter_context, locked())
        known = load_state(name)
        if known is not None and is_in_use(known):
            if owner is not None:
                raise LocalClusterError(why_not_ours(known))
            return LocalCluster(name)
        if known is not None:
            await asyncio.to_thread(_remove, known)
        task = shown.add_task(f"Starting the cluster {name}", total=3)
        state = ClusterState(
            name=name,
            network=choose_network({other.network.index for other in all_states()}),
            owner=owner,
        )
        try:
            await _start(state, binaries, nodes, images, lambda: shown.advance(task))
        except BaseException:
            _remove(load_state(name) or state)
            raise
        return LocalCluster(name)


def is_in_use(state: ClusterState) -> bool:
    """Whether a cluster serves somebody: its owner, or whoever started one to keep.

    One that is being started is in use, though it doesn't run yet.
    """
    return state.running if state.owner is None else state.owner.find() is not None


def why_not_ours(state: ClusterState) -> str:
    """A sentence for who wanted the name of a cluster that is in use."""
    if state.owner is not None:
        return (
            f"The cluster {state.name} belongs to process {state.owner.pid} ({state.owner.name}), "
            "which still runs. Wait for its end, or end it, and start again."
        )
    return (
        f"The cluster {state.name} was started to be kept. Take it down with `fathom local down "
        f"--name {state.name}`, and start again."
    )


def down(name: str) -> bool:
    """Ends a cluster and removes all of it; returns whether there was one."""
    with locked():
        state = load_state(name)
        if state is None:
            return False
        require_root()
        _remove(state)
        return True


async def _start(
    state: ClusterState,
    binaries: Binaries,
    nodes: int,
    images: Sequence[Image],
    advance: Callable[[], None],
) -> None:
    # What is not on disk when this command is killed, nobody finds again: each part by itself.
    def save_plane(plane: ControlPlane) -> None:
        state.model_copy(update={"control_plane": plane}).save()

    state.save()
    create_network(state.network)
    plane = await start_control_plane(
        state.directory / "control-plane",
        binaries,
        cluster=state.name,
        services=state.network.services,
        address=state.network.gateway,
        started=save_plane,
    )
    state = state.model_copy(update={"control_plane": plane})
    advance()
    state = start_agents(state, nodes, images)
    advance()
    await _wait_nodes(state, nodes + 1)
    advance()


async def _wait_nodes(state: ClusterState, count: int) -> None:
    deadline = time.monotonic() + NODES_READY_SECONDS
    plane = state.control_plane
    if plane is None:
        raise LocalClusterError(f"The cluster {state.name} has no control plane.")
    async with connect(state.kubeconfig) as client:
        api = KubeApi(client)
        await _publish_api_server(api, str(plane.address), plane.port)
        while time.monotonic() < deadline:
            for record in state.processes:
                if record.find() is None:
                    raise LocalClusterError(_stopped(state, record.name))
            with contextlib.suppress(ApiException, aiohttp.ClientError, TimeoutError):
                nodes = (await api.request("GET", "/api/v1/nodes"))["items"]
                accounts = "/api/v1/namespaces/default/serviceaccounts/default"
                if sum(map(_usable, nodes)) == count and await api.request("GET", accounts):
                    return
            await asyncio.sleep(POLL_SECONDS)
    raise LocalClusterError(
        f"The nodes of {state.name} were not ready within {NODES_READY_SECONDS:.0f} s; see "
        f"{state.directory / 'logs'}."
    )


def _usable(node: Object) -> bool:
    taints = node["spec"].get("taints") or ()
    return all(taint["key"] != NOT_READY_TAINT for taint in taints) and any(
        condition["type"] == "Ready" and condition["status"] == "True"
        for condition in node["status"].get("conditions") or ()
    )


async def _publish_api_server(api: KubeApi, address: str, port: int) -> None:
    """Gives the service `default/kubernetes` its endpoint.

    The API server would do it itself, but writes to it again every 10 seconds.
    """
    body: Object = {
        "apiVersion": "v1",
        "kind": "Endpoints",
        "metadata": {"name": "kubernetes"},
        "subsets": [{"addresses": [{"ip": address}], "ports": [{"name": "https", "port": port}]}],
    }
    with contextlib.suppress(ApiException):
        await api.request("POST", "/api/v1/namespaces/default/endpoints", body=body)


def _stopped(state: ClusterState, name: str) -> str:
    plane_log = state.directory / "control-plane" / "logs" / f"{name}.log"
    agent_log = state.directory / "logs" / f"{name}.log"
    log = agent_log if agent_log.exists() else plane_log
    return f"{name} of the cluster {state.name} ended; the end of {log}:\n{last_lines(log)}"


def _remove(state: ClusterState) -> None:
    # The kubelet first: its pods end with it. The control plane would only restart them.
    stop_processes(state.agents)
    if state.control_plane is not None:
        state.control_plane.stop()
    delete_network(state.network)
    shutil.rmtree(state.memory_directory, ignore_errors=True)
    shutil.rmtree(state.directory, ignore_errors=True)
