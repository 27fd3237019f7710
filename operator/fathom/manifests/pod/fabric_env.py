"""How the pods of one replica reach each other. A replica on one node must have none of it.

On one node NCCL finds NVLink by itself. Told to use NVLink between nodes there, it looks for an
IMEX channel that such a pod rightly lacks, and `ncclCommInitRank` fails (ai-dynamo/dynamo,
recipes/deepseek-v4.1-flash/README.md). So nothing of this is a default for everybody.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from fathom.api.spec import SpeculativeDeploymentSpec
from fathom.engine.profile import EngineProfile
from fathom.engine.ranks import Role
from fathom.manifests.pod.overlays import overlays
from fathom.manifests.pod.template_parts import part

NVLINK: Final[Mapping[str, str]] = MappingProxyType(
    {
        "NCCL_MNNVL_ENABLE": "1",
        "NCCL_NVLS_ENABLE": "1",
        "NCCL_CUMEM_ENABLE": "1",
        "UCX_CUDA_IPC_ENABLE_MNNVL": "y",
    }
)
"""Without these a replica over two trays that has its claims fails all the same: "invalid resource
handle ... NCCL_MNNVL_CLIQUE_ID: unset" (ai-dynamo/dynamo, recipes/deepseek-v4-pro-0813, revision
555e6b6)."""

INTERFACE: Final[Mapping[str, str]] = MappingProxyType(
    {"NCCL_SOCKET_IFNAME": "eth0", "GLOO_SOCKET_IFNAME": "eth0"}
)
"""The pod's own interface, as every common CNI calls it. A pod with more of them, such as the RDMA
interfaces of GKE, else lets NCCL and Gloo choose, and they may choose one that leads nowhere."""


def fabric_env(engine: EngineProfile, role: Role = Role.LEADER) -> Mapping[str, str]:
    """Variables by name; empty for a replica on one node."""
    if not engine.layout.spans_nodes:
        return {}
    return {
        **(NVLINK if engine.layout.over_nvlink else {}),
        **({} if _on_host_network(engine.spec, role) else INTERFACE),
    }


def _on_host_network(spec: SpeculativeDeploymentSpec, role: Role) -> bool:
    """Whether the interfaces are the node's, whose names nobody here knows."""
    pods = (part(each.given, "spec") for each in overlays(spec, role))
    stated = [pod["hostNetwork"] for pod in pods if "hostNetwork" in pod]
    return bool(stated) and stated[-1] is True
