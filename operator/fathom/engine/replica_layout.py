"""How one replica lies on nodes: its ranks, where they meet and who serves. Pure.

vLLM listens at one address: 0.0.0.0 is every IPv4 address, and :: every address where the pod has
IPv6, IPv4 included. With :: it fails to start where the kernel has no IPv6 (`create_server_socket`
in vllm/entrypoints/openai/api_server.py, 0.28 and 0.32).
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from fathom.api import names
from fathom.api.accelerators import preset_for
from fathom.api.choices import ComputeDomainPolicy
from fathom.api.spec import SpeculativeDeploymentSpec

HOST_FLAG: Final = "--host"
EVERY_IPV4: Final = "0.0.0.0"  # noqa: S104 - pods are reached at an address of their own
EVERY_ADDRESS: Final = "::"
LEADER_ADDRESS: Final = "LWS_LEADER_ADDRESS"
"""Variable with the leader's host name, in every container of a group."""
WORKER_INDEX: Final = "LWS_WORKER_INDEX"
"""Variable with the pod's number in its group; the leader's is 0."""
MASTER_PORT: Final = 29501
"""vLLM's default of --master-port, where the ranks of all nodes meet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaLayout:
    ranks_per_engine: int
    """That one engine's step takes, each on a GPU of its own: tensor × pipeline parallelism."""
    ranks: int
    """All its engines' together: those of one × data parallelism."""
    on_gpus: bool
    """Whether each rank has a GPU; else the only one computes on processors."""
    nodes: int
    """Pods of one replica, one on each node that it needs."""
    domain_key: str
    """The node label whose value all pods of one replica share; empty: they need none in common.
    Only a replica over several nodes has to be kept together."""
    over_nvlink: bool
    """Whether its nodes use NVLink, through IMEX channels that somebody gives."""
    needs_compute_domain: bool
    """Whether the operator makes the ComputeDomain through which they do."""

    @property
    def spans_nodes(self) -> bool:
        """Whether it is a group of pods: a leader that serves, and headless workers."""
        return self.nodes > 1

    @property
    def ranks_per_pod(self) -> int:
        """That run in each pod."""
        return self.ranks // self.nodes

    @property
    def gpus(self) -> int:
        """That the whole replica has."""
        return self.ranks if self.on_gpus else 0

    @property
    def gpus_per_pod(self) -> int:
        """That each pod asks for; of a replica over several nodes, all that a node has."""
        return self.gpus // self.nodes


def layout_of(spec: SpeculativeDeploymentSpec) -> ReplicaLayout:
    """How each replica of a spec lies."""
    pool, preset = spec.node_pool, preset_for(spec.node_pool)
    ranks_per_engine = spec.engine.tensor_parallel_size * spec.engine.pipeline_parallel_size
    ranks = ranks_per_engine * spec.engine.data_parallel_size
    nodes = -(-ranks // preset.ranks_per_node)
    domain_key = (pool.topology_key or preset.domain_key) if nodes > 1 else ""
    asked = pool.compute_domain is not ComputeDomainPolicy.NEVER
    has_nvlink = preset.vendor is not None and preset.vendor.has_nvlink
    over_nvlink = asked and has_nvlink and domain_key != ""
    return ReplicaLayout(
        ranks_per_engine=ranks_per_engine,
        ranks=ranks,
        on_gpus=preset.has_gpus,
        nodes=nodes,
        domain_key=domain_key,
        over_nvlink=over_nvlink,
        needs_compute_domain=over_nvlink and pool.compute_domain is ComputeDomainPolicy.AUTO,
    )


class Role(StrEnum):
    """Role of a pod in its replica."""

    LEADER = names.ROLE_LEADER
    WORKER = names.ROLE_WORKER
