"""What runs beside the control plane: the kubelet of all nodes, and the proxy of the services."""

import sys
from collections.abc import Sequence
from pathlib import Path

from local_cluster.control_plane.credentials import KUBELET
from local_cluster.errors import LocalClusterError
from local_cluster.images import Image, default_images
from local_cluster.kubelet.config import KubeletConfig
from local_cluster.nodes import local_nodes
from local_cluster.processes import ProcessRecord, daemon_environment, start_daemon
from local_cluster.service_proxy import ServiceProxyConfig
from local_cluster.state import AGENTS, ClusterState


def start_agents(state: ClusterState, nodes: int, images: Sequence[Image]) -> ClusterState:
    """Start all, each noted on disk as soon as it runs; returns the state with them.

    Raises:
        LocalClusterError: there is no control plane.
    """
    plane = state.control_plane
    if plane is None:
        raise LocalClusterError(f"The cluster {state.name} has no control plane.")
    kubeconfig = plane.credentials.kubeconfig(KUBELET)
    kubelet, service_proxy = AGENTS
    configs = {
        kubelet: KubeletConfig(
            kubeconfig=kubeconfig,
            ca_certificate=plane.credentials.ca_certificate,
            certificate=plane.credentials.server_certificate,
            key=plane.credentials.server_key,
            api_port=plane.port,
            version=plane.version,
            network=state.network,
            nodes=local_nodes(nodes),
            images=default_images(images),
            pods_directory=state.directory / "pods",
            claims_directory=state.directory / "claims",
            logs_directory=state.pod_logs,
            memory_directory=state.memory_directory,
        ),
        service_proxy: ServiceProxyConfig(kubeconfig=kubeconfig, network=state.network),
    }
    for name, config in configs.items():
        _config_path(state, name).write_text(config.model_dump_json(indent=2))
        agent = start_agent(state, name)
        state = state.model_copy(update={"agents": (*state.agents, agent)})
        state.save()
    return state


def start_agent(state: ClusterState, name: str) -> ProcessRecord:
    """Start one, with the configuration that it was started with first."""
    return start_daemon(
        name,
        [sys.executable, "-m", f"local_cluster.{name}", str(_config_path(state, name))],
        log=state.directory / "logs" / f"{name}.log",
        env=daemon_environment(),
    )


def _config_path(state: ClusterState, agent: str) -> Path:
    return state.directory / f"{agent}.json"
