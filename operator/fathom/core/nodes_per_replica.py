"""How many nodes one replica needs. Pure."""

from fathom.api.accelerators import preset_for
from fathom.api.spec import SpeculativeDeploymentSpec


def nodes_per_replica(spec: SpeculativeDeploymentSpec) -> int:
    """Nodes, all of one replica's GPUs together; 1 or more.

    Data-parallel engines are not counted: each has GPUs of its own.
    """
    gpus = spec.engine.tensor_parallel_size * spec.engine.pipeline_parallel_size
    return -(-gpus // preset_for(spec.node_pool).gpus_per_node)


def spans_nodes(spec: SpeculativeDeploymentSpec) -> bool:
    """Whether one replica is several pods, which talk over the network or over NVLink."""
    return nodes_per_replica(spec) > 1
