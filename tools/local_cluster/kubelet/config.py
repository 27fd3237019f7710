from pathlib import Path

from pydantic import BaseModel, ConfigDict

from local_cluster.images import ImageTable
from local_cluster.network import ClusterNetwork


class NodeConfig(BaseModel):
    """A node that this kubelet pretends to be."""

    model_config = ConfigDict(frozen=True)

    name: str
    labels: dict[str, str] = {}
    taints: tuple[dict[str, str], ...] = ()
    capacity: dict[str, str] = {}
    architecture: str = "amd64"


class KubeletConfig(BaseModel):
    """Everything a kubelet process is told; it reads this from a file."""

    model_config = ConfigDict(frozen=True)

    kubeconfig: Path
    ca_certificate: Path
    certificate: Path
    """Shown to the API server, which is at the same address and shows it in turn."""
    key: Path
    api_port: int
    version: str
    """Version of Kubernetes, such as 1.36.2: the control plane's."""
    network: ClusterNetwork
    nodes: tuple[NodeConfig, ...]
    images: ImageTable
    pods_directory: Path
    """Volumes and root filesystems of the pods that run."""
    claims_directory: Path
    """Files of PersistentVolumeClaims; they outlive the pods."""
    logs_directory: Path
    memory_directory: Path
    """On a tmpfs: memory volumes."""
    backoff_seconds: float = 1.0
    """Pause before the second restart of a container; it doubles."""
    backoff_limit_seconds: float = 30.0
