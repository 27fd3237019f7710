"""Over how many nodes one replica of a spec spreads. Pure."""

from fathom.api.accelerators import preset_for, vendor_of
from fathom.api.choices import ComputeDomainPolicy
from fathom.api.spec import SpeculativeDeploymentSpec


def gpus_per_engine(spec: SpeculativeDeploymentSpec) -> int:
    """GPUs that one engine's step takes: tensor × pipeline parallelism."""
    return spec.engine.tensor_parallel_size * spec.engine.pipeline_parallel_size


def gpus_per_replica(spec: SpeculativeDeploymentSpec) -> int:
    """GPUs of all its engines: those of one × data parallelism."""
    return gpus_per_engine(spec) * spec.engine.data_parallel_size


def nodes_per_replica(spec: SpeculativeDeploymentSpec) -> int:
    """Pods of one replica, one on each node that it needs."""
    return -(-gpus_per_replica(spec) // preset_for(spec.node_pool).gpus_per_node)


def spans_nodes(spec: SpeculativeDeploymentSpec) -> bool:
    """Whether a replica is a group of pods: a leader that serves, and headless workers."""
    return nodes_per_replica(spec) > 1


def gpus_per_pod(spec: SpeculativeDeploymentSpec) -> int:
    """GPUs that each pod asks for; of a replica over several nodes, all that a node has."""
    return gpus_per_replica(spec) // nodes_per_replica(spec)


def domain_key(spec: SpeculativeDeploymentSpec) -> str:
    """The node label whose value all pods of one replica share; empty: they need none in common.

    Only a replica over several nodes has to be kept together.
    """
    if not spans_nodes(spec):
        return ""
    return spec.node_pool.topology_key or preset_for(spec.node_pool).domain_key


def over_nvlink(spec: SpeculativeDeploymentSpec) -> bool:
    """Whether the nodes of one replica use NVLink, through IMEX channels that somebody gives."""
    asked = spec.node_pool.compute_domain is not ComputeDomainPolicy.NEVER
    return asked and vendor_of(spec.node_pool).has_nvlink and domain_key(spec) != ""


def needs_compute_domain(spec: SpeculativeDeploymentSpec) -> bool:
    """Whether the operator makes the ComputeDomain through which a replica's nodes use NVLink."""
    return over_nvlink(spec) and spec.node_pool.compute_domain is ComputeDomainPolicy.AUTO
